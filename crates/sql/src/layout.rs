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

mod form;
mod leading;
mod mysql;
mod parse;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rockmill_core::scan::{
    Check, Comparison, Instruction, IntegerRange, Literal, Number, Operation, Register, ValueKind,
};

use form::{Cursor, Form};
use parse::parts;

pub use leading::LeadingColumn;

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

fn arithmetic(operation: Operation, left: Register, right: Register) -> Instruction {
    Instruction::Arithmetic {
        operation,
        left,
        right,
        range: IntegerRange::Exact,
    }
}
