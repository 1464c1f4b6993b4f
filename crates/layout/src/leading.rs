//! The columns with which keys begin.

use rockmill_core::scan::{Literal, Number, NumberFormat, StringGroups};

use crate::form::Form;
use crate::{Layout, Part};

impl Layout {
    /// Position of the column that is the user key, if there is one.
    pub fn key_column(&self) -> Option<usize> {
        match &self.key[..] {
            [
                Part {
                    form: Form::Rest { behind: 0 },
                    column,
                },
            ] => *column,
            _ => None,
        }
    }

    /// Whether the rows are in the order of a column's values.
    pub fn ordered_by(&self) -> Option<usize> {
        // Nulls may be anywhere in the order.
        if self.nulls_what_is_malformed {
            return None;
        }
        let first = self.key.get(self.leading_literals())?;
        let is_ordered = match &first.form {
            Form::Number(number) => is_ordered(*number),
            Form::Bytes(_) | Form::Rest { behind: 0 } | Form::Decimal(_) => true,
            Form::String(StringGroups::Counted) => true,
            _ => false,
        };
        // A bit may say that the value is null, whatever the bytes of the key are.
        first
            .column
            .filter(|&column| is_ordered && self.null_bits[column].is_none())
    }

    /// Parts with which all keys of the table begin.
    pub(crate) fn leading_literals(&self) -> usize {
        let literals = self.key.iter();
        literals
            .take_while(|part| matches!(part.form, Form::Literal(_)))
            .count()
    }

    /// Bytes with which all keys of the table, and no other keys, begin.
    pub fn key_prefix(&self) -> Vec<u8> {
        let literals = self.key[..self.leading_literals()].iter();
        let literals = literals.map(|part| match &part.form {
            Form::Literal(bytes) => bytes.as_slice(),
            _ => &[],
        });
        literals.collect::<Vec<_>>().concat()
    }

    /// The columns that follow the literals with which keys begin, as far as their bytes sort as they do.
    pub fn leading_columns(&self) -> impl Iterator<Item = LeadingColumn<'_>> {
        self.key[self.leading_literals()..]
            .iter()
            .map_while(|part| {
                let is_leading = match &part.form {
                    Form::Number(number) => is_ordered(*number) && number.bytes <= 8,
                    Form::Bytes(_) | Form::String(StringGroups::Counted) => true,
                    _ => false,
                };
                let position = part.column.filter(|_| is_leading)?;
                let form = &part.form;
                Some(LeadingColumn { position, form })
            })
    }
}

/// A column whose bytes sort as it does.
#[derive(Debug, Clone, Copy)]
pub struct LeadingColumn<'a> {
    /// Its position in the table.
    pub position: usize,
    form: &'a Form,
}

impl LeadingColumn<'_> {
    /// Whether bytes are those of a value.
    pub fn is_value(&self, bytes: &[u8]) -> bool {
        match self.form {
            Form::Number(number) => bytes.len() == usize::from(number.bytes),
            Form::Bytes(len) => bytes.len() == *len as usize,
            Form::String(groups) => groups.size(bytes) == Some(bytes.len()),
            _ => false,
        }
    }

    /// The bytes of a value; `None` if it has none.
    pub fn encode(&self, value: &Literal) -> Option<Vec<u8>> {
        match (self.form, value) {
            (Form::Number(number), Literal::Integer(integer)) => {
                let bits = 8 * u32::from(number.bytes);
                let least = match number.format {
                    NumberFormat::SignedInverted => -1i128 << (bits - 1),
                    _ => 0,
                };
                let stored = integer.checked_sub(least)?;
                let fits = (0..1 << bits).contains(&stored);
                let stored = stored.to_be_bytes();
                fits.then(|| stored[stored.len() - usize::from(number.bytes)..].to_vec())
            }
            (Form::Bytes(len), Literal::Bytes(bytes)) => {
                (bytes.len() == *len as usize).then(|| bytes.clone())
            }
            (Form::String(StringGroups::Counted), Literal::Bytes(bytes)) => {
                Some(StringGroups::encode_counted(bytes))
            }
            _ => None,
        }
    }
}

fn is_ordered(number: Number) -> bool {
    match number.format {
        NumberFormat::Unsigned | NumberFormat::SignedInverted => {
            number.is_big_endian || number.bytes == 1
        }
        NumberFormat::Signed | NumberFormat::Float => false,
    }
}
