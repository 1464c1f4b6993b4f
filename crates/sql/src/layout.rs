//! How the columns of a table lie in keys and values.
//!
//! A layout is a list of parts for the key and one for the value, each in the order of the bytes:
//!
//! | part | bytes |
//! |---|---|
//! | `u8 a`, `i8 a`, `u16be a` .. `i64le a` | an integer |
//! | `ordered(i32) a` | a signed integer as big-endian bytes whose highest bit is inverted, so that they sort as numbers |
//! | `ordered(string) a`, `ordered(bytes) a` | a string in groups of 8 bytes that sort as it does, as MyRocks stores it |
//! | `f32be a` .. `f64le a` | an IEEE 754 number |
//! | `bytes(12) a` | so many bytes |
//! | `varint a`, `len16be a`, `len32le a` .. | bytes behind their length |
//! | `rest a` | all other bytes, as the last part |
//! | `nulls(2)` | 2 bytes of bits, from the lowest of the first byte; each is set if a nullable column is null |
//! | `skip(4)` | 4 bytes of any content |
//! | `'text'`, `x'00ff'` | these bytes |
//!
//! The SQL type says what an integer means: a decimal without its point, days since 1970, a timestamp.
//!
//! Tables of MyRocks have forms of their own, which `mysql` has.

mod mysql;
mod parse;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rockmill_core::scan::{
    Calendar, Check, Comparison, Instruction, IntegerRange, Literal, Number, NumberFormat,
    Operation, PackedDecimal, Prefix, Register, StringGroups, ValueKind,
};

use crate::stored::{column_type, is_bytes};
use parse::parts;

/// A table's columns, and where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    schema: SchemaRef,
    key: Vec<Part>,
    value: Vec<Part>,
    /// Bit of each column that says whether it is null, if there is one.
    null_bits: Vec<Option<u32>>,
    /// Whether a column that is null takes no bytes.
    leaves_out_nulls: bool,
}

/// Some of the bytes of a key or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    form: Form,
    /// Position of the column in the table, if they are one.
    column: Option<usize>,
}

/// What the bytes of a part are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Number(Number),
    Bytes(u32),
    /// Bytes behind their length.
    Prefixed(Prefix),
    Rest,
    /// Bits of the nullable columns.
    Nulls(u32),
    Skip(u32),
    Literal(Vec<u8>),
    Decimal(PackedDecimal),
    /// A time of MySQL's: an integer, and a fraction of a second behind it.
    Time {
        number: Number,
        /// `None` if the integer counts seconds since 1970, and 0 is no time.
        calendar: Option<Calendar>,
        /// Bytes of the fraction: each has two decimal digits.
        fraction: u8,
    },
    /// So many bytes, with spaces behind a shorter text.
    Filled(u32),
    /// A string that sorts as its bytes do.
    String(StringGroups),
    /// A string with spaces at its end, as many of which belong to it as the unpack info says.
    Padded {
        groups: StringGroups,
        /// Where the unpack info says it, and how.
        spaces_at: u32,
        spaces: Number,
    },
    /// What MyRocks needs besides the key to tell its columns: bytes behind a tag and a length of all of it.
    UnpackInfo,
}

/// Where a part begins: so many bytes behind a position that is computed, and then behind some bytes with their lengths.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    computed: Option<Register>,
    bytes: i128,
    prefixed: Option<(Prefix, u16)>,
}

type Push<'a> = &'a mut dyn FnMut(Instruction) -> Register;

impl Layout {
    /// Column `key` with the user key and `value` with the value, both of any bytes.
    pub fn raw() -> Self {
        let column = |name| Field::new(name, DataType::Binary, false);
        let rest = |column| Part {
            form: Form::Rest,
            column: Some(column),
        };
        Self {
            schema: Arc::new(Schema::new(vec![column("key"), column("value")])),
            key: vec![rest(0)],
            value: vec![rest(1)],
            null_bits: vec![None; 2],
            leaves_out_nulls: false,
        }
    }

    /// The layout of the columns of `schema`, as texts for key and value give it.
    ///
    /// # Errors
    /// One sentence if a text is malformed, or does not fit the columns.
    pub fn parse(schema: SchemaRef, key: &str, value: &str) -> Result<Self, String> {
        let mut bits = (0..).peekable();
        let nullable = schema.fields().iter().map(|field| field.is_nullable());
        let layout = Self {
            key: parts(key, &schema)?,
            value: parts(value, &schema)?,
            null_bits: nullable
                .map(|nullable| bits.next_if(|_| nullable))
                .collect(),
            leaves_out_nulls: false,
            schema,
        };
        layout.check()?;
        Ok(layout)
    }

    fn check(&self) -> Result<(), String> {
        let all = || self.key.iter().chain(&self.value);
        for (position, field) in self.schema.fields().iter().enumerate() {
            let places = all().filter(|part| part.column == Some(position)).count();
            if places != 1 {
                let name = field.name();
                return Err(format!(
                    "column {name} lies in {places} parts of the layout, not in one"
                ));
            }
        }
        let nulls: Vec<_> = all().filter_map(|part| part.form.null_bits()).collect();
        let nullable = self
            .schema
            .fields()
            .iter()
            .filter(|field| field.is_nullable())
            .count();
        match nulls[..] {
            [] if nullable > 0 => {
                return Err(
                    "the layout has nullable columns and no part nulls(..): say NOT NULL"
                        .to_owned(),
                );
            }
            [bits] if bits < nullable => {
                return Err(format!(
                    "nulls(..) has {bits} bits for {nullable} nullable columns"
                ));
            }
            [] | [_] => {}
            _ => return Err("the layout has more than one part nulls(..)".to_owned()),
        }
        for part in all() {
            if let Some(column) = part.column {
                part.form.fits(self.schema.field(column))?;
            }
        }
        for parts in [&self.key, &self.value] {
            let rest = parts.iter().position(|part| part.form == Form::Rest);
            if rest.is_some_and(|rest| rest + 1 < parts.len()) {
                return Err("a part follows rest, which takes all bytes".to_owned());
            }
        }
        Ok(())
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Position of the column that is the user key, if there is one.
    pub fn key_column(&self) -> Option<usize> {
        match &self.key[..] {
            [
                Part {
                    form: Form::Rest,
                    column,
                },
            ] => *column,
            _ => None,
        }
    }

    /// Whether the rows are in the order of a column's values.
    pub fn ordered_by(&self) -> Option<usize> {
        let first = self.key.get(self.leading_literals())?;
        let is_ordered = match &first.form {
            Form::Number(number) => is_ordered(*number),
            Form::Bytes(_) | Form::Rest | Form::Decimal(_) => true,
            Form::String(StringGroups::Counted) => true,
            _ => false,
        };
        first.column.filter(|_| is_ordered)
    }

    /// Parts with which all keys of the table begin.
    fn leading_literals(&self) -> usize {
        let literals = self.key.iter();
        literals
            .take_while(|part| matches!(part.form, Form::Literal(_)))
            .count()
    }

    /// Bytes with which all keys of the table begin, and no others.
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

    /// Adds the instructions that compute a column.
    pub fn column(&self, position: usize, push: Push<'_>) -> Register {
        let find = |parts: &[Part]| parts.iter().position(|part| part.column == Some(position));
        let (parts, source) = match find(&self.key) {
            Some(_) => (&self.key, Instruction::Key),
            None => (&self.value, Instruction::Value),
        };
        let from = push(source);
        let mut at = Cursor::START;
        for part in parts {
            if part.column != Some(position) {
                at = self.after(part, from, at, push);
                continue;
            }
            let value = match part.form {
                Form::Padded {
                    groups,
                    spaces_at,
                    spaces,
                } => {
                    let at = at.register(from, push);
                    let spaces = Some(self.spaces(spaces_at, spaces, push));
                    push(Instruction::String {
                        from,
                        at,
                        groups,
                        spaces,
                    })
                }
                _ => part.form.value(from, at, push),
            };
            let Some(bit) = self.null_bits[position] else {
                return value;
            };
            let when = self.is_null(bit, push);
            let kind = match part.form.is_bytes() {
                true => ValueKind::Bytes,
                false => ValueKind::Integer,
            };
            let then = push(Instruction::Constant(Literal::Null(kind)));
            return push(Instruction::Select {
                when,
                then,
                otherwise: value,
            });
        }
        // `check` has found each column.
        push(Instruction::Constant(Literal::Null(ValueKind::Bytes)))
    }

    /// Where the part behind one begins.
    fn after(&self, part: &Part, from: Register, at: Cursor, push: Push<'_>) -> Cursor {
        let end = part.form.after(from, at, push);
        let column = part.column.filter(|_| self.leaves_out_nulls);
        let Some(bit) = column.and_then(|column| self.null_bits[column]) else {
            return end;
        };
        let when = self.is_null(bit, push);
        let (then, otherwise) = (at.register(from, push), end.register(from, push));
        Cursor::computed(push(Instruction::Select {
            when,
            then,
            otherwise,
        }))
    }

    /// The number of spaces of a padded string, as the unpack info has it.
    fn spaces(&self, at: u32, number: Number, push: Push<'_>) -> Register {
        let from = push(Instruction::Value);
        let before = self.value.iter();
        let before = before.take_while(|part| part.form != Form::UnpackInfo);
        let info = before.fold(Cursor::START, |at, part| self.after(part, from, at, push));
        let at = info.plus(at, from, push).register(from, push);
        push(Instruction::Load { from, at, number })
    }

    /// Whether the column of a bit is null.
    fn is_null(&self, bit: u32, push: Push<'_>) -> Register {
        for (parts, source) in [
            (&self.key, Instruction::Key),
            (&self.value, Instruction::Value),
        ] {
            let nulls = parts
                .iter()
                .position(|part| part.form.null_bits().is_some());
            let Some(nulls) = nulls else {
                continue;
            };
            let from = push(source);
            let before = parts[..nulls].iter();
            let at = before.fold(Cursor::START, |at, part| part.form.after(from, at, push));
            let bit = i128::from(bit);
            let constant = |integer| Instruction::Constant(Literal::Integer(integer));
            let at = match (at.computed, at.prefixed) {
                (None, None) => push(constant(bit + 8 * at.bytes)),
                _ => {
                    let (at, eight) = (at.register(from, push), push(constant(8)));
                    let first = push(arithmetic(Operation::Multiply, at, eight));
                    let bit = push(constant(bit));
                    push(arithmetic(Operation::Add, first, bit))
                }
            };
            return push(Instruction::Bit { from, at });
        }
        push(Instruction::Constant(Literal::Boolean(false)))
    }

    /// Adds the conditions under which the bytes of a row are what the layout says: that no part runs past the end, that
    /// no byte is left over, and that the columns that are used have values of their types.
    pub fn checks(&self, used: &BTreeSet<usize>, push: Push<'_>) -> Vec<Check> {
        let mut checks = Vec::new();
        let both = [
            (&self.key, Instruction::Key, "key"),
            (&self.value, Instruction::Value, "value"),
        ];
        for (parts, source, name) in both {
            if matches!(
                &parts[..],
                [Part {
                    form: Form::Rest,
                    ..
                }]
            ) {
                continue;
            }
            let others = match source {
                // Other keys are not read.
                Instruction::Key => self.leading_literals(),
                _ => 0,
            };
            let from = push(source);
            let length = push(Instruction::Length(from));
            let mut at = Cursor::START;
            for (position, part) in parts.iter().enumerate() {
                if let Form::Literal(bytes) = &part.form
                    && position >= others
                {
                    let found = Form::Bytes(bytes.len() as u32).value(from, at, push);
                    let bytes = push(Instruction::Constant(Literal::Bytes(bytes.clone())));
                    let holds = push(Instruction::Compare {
                        comparison: Comparison::Equal,
                        left: found,
                        right: bytes,
                    });
                    let what = format!("the {name} lacks a literal of the layout");
                    checks.push(Check { holds, what });
                }
                at = self.after(part, from, at, push);
            }
            let ends_with_rest = parts.last().is_some_and(|part| part.form == Form::Rest);
            let (comparison, what) = match ends_with_rest {
                true => (
                    Comparison::LessOrEqual,
                    format!("the layout runs past the end of the {name}"),
                ),
                false => (
                    Comparison::Equal,
                    format!(
                        "the layout does not end with the {name}: it runs past its end, or leaves bytes over"
                    ),
                ),
            };
            let left = at.register(from, push);
            let holds = push(Instruction::Compare {
                comparison,
                left,
                right: length,
            });
            checks.push(Check { holds, what });
        }
        for &position in used {
            let mut places = self.key.iter().chain(&self.value);
            if !places.any(|part| part.column == Some(position) && part.form.may_not_decode()) {
                continue;
            }
            let value = self.column(position, push);
            let is_null = push(Instruction::IsNull(value));
            let is_set = push(Instruction::Not(is_null));
            let holds = match self.null_bits[position] {
                None => is_set,
                Some(bit) => {
                    let is_null = self.is_null(bit, push);
                    push(Instruction::Or(is_null, is_set))
                }
            };
            let what = format!(
                "the bytes of column {} are no value of its type",
                self.schema.field(position).name()
            );
            checks.push(Check { holds, what });
        }
        checks
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

fn arithmetic(operation: Operation, left: Register, right: Register) -> Instruction {
    Instruction::Arithmetic {
        operation,
        left,
        right,
        range: IntegerRange::Exact,
    }
}

impl Cursor {
    const START: Self = Self {
        computed: None,
        bytes: 0,
        prefixed: None,
    };

    /// At a position that an instruction computes.
    fn computed(register: Register) -> Self {
        Self {
            computed: Some(register),
            ..Self::START
        }
    }

    fn is_start(self) -> bool {
        self.computed.is_none() && self.bytes == 0 && self.prefixed.is_none()
    }

    /// The position within the bytes of `from`.
    fn register(self, from: Register, push: Push<'_>) -> Register {
        let at = match self.computed {
            Some(computed) if self.bytes == 0 => computed,
            Some(computed) => {
                let bytes = push(Instruction::Constant(Literal::Integer(self.bytes)));
                push(arithmetic(Operation::Add, computed, bytes))
            }
            None => push(Instruction::Constant(Literal::Integer(self.bytes))),
        };
        match self.prefixed {
            None => at,
            Some((prefix, count)) => push(Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            }),
        }
    }

    fn plus(self, bytes: u32, from: Register, push: Push<'_>) -> Self {
        let before = match self.prefixed {
            None => self,
            Some(_) => Self::computed(self.register(from, push)),
        };
        Self {
            bytes: before.bytes + i128::from(bytes),
            ..before
        }
    }
}

impl Form {
    /// Whether values are bytes.
    fn is_bytes(&self) -> bool {
        !matches!(self, Self::Number(_) | Self::Decimal(_) | Self::Time { .. })
    }

    /// Whether there may be no value although all of its bytes are there, which is an error.
    fn may_not_decode(&self) -> bool {
        matches!(
            self,
            Self::Decimal(_) | Self::String(_) | Self::Padded { .. }
        )
    }

    fn null_bits(&self) -> Option<usize> {
        match self {
            Self::Nulls(bytes) => Some(*bytes as usize * 8),
            _ => None,
        }
    }

    /// Where the next part begins.
    fn after(&self, from: Register, at: Cursor, push: Push<'_>) -> Cursor {
        match self {
            Self::Number(number) => at.plus(u32::from(number.bytes), from, push),
            Self::Bytes(bytes) | Self::Nulls(bytes) | Self::Skip(bytes) | Self::Filled(bytes) => {
                at.plus(*bytes, from, push)
            }
            Self::Literal(bytes) => at.plus(bytes.len() as u32, from, push),
            Self::Decimal(decimal) => at.plus(decimal.bytes(), from, push),
            Self::Time {
                number, fraction, ..
            } => at.plus(u32::from(number.bytes + fraction), from, push),
            Self::String(groups) | Self::Padded { groups, .. } => {
                let (at, groups) = (at.register(from, push), *groups);
                let size = push(Instruction::StringSize { from, at, groups });
                Cursor::computed(push(arithmetic(Operation::Add, at, size)))
            }
            Self::UnpackInfo => {
                let number = mysql::UNPACK_INFO_LENGTH;
                let place = at.plus(mysql::UNPACK_INFO_TAG_BYTES, from, push);
                let place = place.register(from, push);
                let length = push(Instruction::Load {
                    from,
                    at: place,
                    number,
                });
                let at = at.register(from, push);
                Cursor::computed(push(arithmetic(Operation::Add, at, length)))
            }
            // Nothing follows.
            Self::Rest => at,
            Self::Prefixed(prefix) => match at.prefixed {
                Some((before, count)) if before == *prefix && count < u16::MAX => Cursor {
                    prefixed: Some((before, count + 1)),
                    ..at
                },
                _ => Cursor {
                    prefixed: Some((*prefix, 1)),
                    ..at.plus(0, from, push)
                },
            },
        }
    }

    fn value(&self, from: Register, at: Cursor, push: Push<'_>) -> Register {
        let slice = |at: Register, length: Register| Instruction::Slice { from, at, length };
        match self {
            Self::Number(number) => {
                let (at, number) = (at.register(from, push), *number);
                push(Instruction::Load { from, at, number })
            }
            Self::Bytes(bytes) | Self::Nulls(bytes) | Self::Skip(bytes) => {
                let at = at.register(from, push);
                let length = push(Instruction::Constant(Literal::Integer(i128::from(*bytes))));
                push(slice(at, length))
            }
            Self::Literal(bytes) => push(Instruction::Constant(Literal::Bytes(bytes.clone()))),
            Self::Decimal(decimal) => {
                let (at, decimal) = (at.register(from, push), *decimal);
                push(Instruction::Decimal { from, at, decimal })
            }
            Self::Time {
                number,
                calendar,
                fraction,
            } => mysql::time(*number, *calendar, *fraction, from, at, push),
            Self::Filled(bytes) => {
                let filled = Self::Bytes(*bytes).value(from, at, push);
                push(Instruction::TrimEnd(filled))
            }
            // `Layout::column` knows the spaces of a padded one.
            Self::String(groups) | Self::Padded { groups, .. } => {
                let (at, groups) = (at.register(from, push), *groups);
                push(Instruction::String {
                    from,
                    at,
                    groups,
                    spaces: None,
                })
            }
            Self::UnpackInfo => push(Instruction::Constant(Literal::Null(ValueKind::Bytes))),
            Self::Prefixed(prefix) => {
                let (at, prefix) = (at.register(from, push), *prefix);
                push(Instruction::Prefixed { from, at, prefix })
            }
            Self::Rest if at.is_start() => from,
            Self::Rest => {
                let at = at.register(from, push);
                let all = push(Instruction::Length(from));
                let length = push(arithmetic(Operation::Subtract, all, at));
                push(slice(at, length))
            }
        }
    }

    /// Whether a column can have this form.
    fn fits(&self, field: &Field) -> Result<(), String> {
        let data_type = field.data_type();
        let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
        let fits = match self {
            Self::Number(number) => match (number.format, data_type) {
                (NumberFormat::Float, DataType::Float32) => number.bytes == 4,
                (NumberFormat::Float, DataType::Float64) => number.bytes == 8,
                (NumberFormat::Float, _) => false,
                _ => !is_float && !is_bytes(data_type) && holds(data_type, *number),
            },
            Self::Bytes(_) | Self::Prefixed(_) | Self::Rest => {
                is_bytes(data_type) && column_type(data_type).is_some()
            }
            Self::String(_) => is_bytes(data_type) && column_type(data_type).is_some(),
            // They have no names.
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(format!(
                "column {} of type {data_type} cannot lie in its part of the layout",
                field.name()
            )),
        }
    }
}

/// Whether each number that is stored so is a value of the type.
fn holds(data_type: &DataType, number: Number) -> bool {
    let is_signed = number.format != NumberFormat::Unsigned;
    let (bytes, signed) = match data_type {
        DataType::Int8 => (1, true),
        DataType::Int16 => (2, true),
        DataType::Int32 | DataType::Date32 => (4, true),
        DataType::Int64 | DataType::Timestamp(..) => (8, true),
        DataType::UInt8 => (1, false),
        DataType::UInt16 => (2, false),
        DataType::UInt32 => (4, false),
        DataType::UInt64 => (8, false),
        DataType::Decimal128(..) => return true,
        _ => return false,
    };
    match (is_signed, signed) {
        (true, true) | (false, false) => number.bytes <= bytes,
        (false, true) => number.bytes < bytes,
        (true, false) => false,
    }
}
