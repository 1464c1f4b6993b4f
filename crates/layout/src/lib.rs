//! Describes how the columns of a table are stored in keys and values.
//!
//! A layout is a list of parts for the key and one for the value, each in the order of the bytes:
//!
//! | part | bytes |
//! |---|---|
//! | `u8 a`, `i8 a`, `u16be a` .. `i64le a` | an integer |
//! | `ordered(i32) a` | a signed integer as big-endian bytes whose highest bit is inverted, so that they sort as numbers |
//! | `ordered(string) a`, `ordered(bytes) a` | a string in groups of 8 bytes that sort as it does, as MyRocks stores it |
//! | `f32be a` .. `f64le a` | an IEEE 754 number |
//! | `bytes(12) a` | 12 bytes |
//! | `varint a`, `len16be a`, `len32le a` .. | bytes behind their length |
//! | `rest a` | all other bytes; parts of fixed length may follow |
//! | `nulls(2)` | 2 bytes of bits, from the lowest of the first byte; each is set if a nullable column is null |
//! | `skip(4)` | 4 bytes of any content |
//! | `'text'`, `x'00ff'` | these bytes |
//!
//! The SQL type says what an integer means: a decimal without its point, days since 1970, a timestamp.
//!
//! `preset` has the layouts of values that have names.
//!
//! Tables of MyRocks have forms of their own; see `mysql`.

#![forbid(unsafe_code)]

mod create_table;
mod form;
mod leading;
mod mysql;
mod parse;
mod preset;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use rockmill_core::scan::{
    Check, Comparison, Instruction, IntegerRange, Json, Literal, Number, Operation, Register,
    ValueKind,
};

use form::{Cursor, Form};
use parse::parts;
use preset::{ROW_VERSION, preset};

pub use create_table::MysqlTable;
pub use leading::LeadingColumn;
pub use types::{column_type, is_binary, is_bytes, is_text, value_kind};

/// A table's columns, and their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    schema: SchemaRef,
    key: Vec<Part>,
    value: Vec<Part>,
    /// Bit of each column that says whether it is null, if there is one.
    null_bits: Vec<Option<u32>>,
    /// Whether a column that is null takes no bytes.
    leaves_out_nulls: bool,
    /// Positions of the columns whose text is stored in MySQL's latin1.
    latin1: BTreeSet<usize>,
    /// Columns that cannot be read, and why.
    unsupported: BTreeMap<usize, String>,
    /// Whether bytes that do not fit the layout are nulls instead of an error.
    nulls_what_is_malformed: bool,
    /// Prefix of errors about rows, if it is not empty.
    name: String,
}

/// Some of the bytes of a key or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    form: Form,
    /// Position of the column in the table, if the bytes are a column.
    column: Option<usize>,
}

impl Part {
    /// Whether it is a column that is a member of a JSON object.
    fn is_member(&self, position: usize) -> bool {
        self.column == Some(position) && matches!(self.form, Form::Member { .. })
    }
}

/// Adds an instruction to a program, unless its result is there already, and returns where the result is.
pub type Push<'a> = &'a mut dyn FnMut(Instruction) -> Register;

impl Layout {
    /// Column `key` with the user key and `value` with the value, both of any bytes.
    pub fn raw() -> Self {
        let column = |name| Field::new(name, DataType::Binary, false);
        let rest = |column| Part {
            form: Form::Rest { behind: 0 },
            column: Some(column),
        };
        Self {
            schema: Arc::new(Schema::new(vec![column("key"), column("value")])),
            key: vec![rest(0)],
            value: vec![rest(1)],
            null_bits: vec![None; 2],
            leaves_out_nulls: false,
            latin1: BTreeSet::new(),
            unsupported: BTreeMap::new(),
            nulls_what_is_malformed: false,
            name: String::new(),
        }
    }

    /// The layout of the columns of `schema`, from the texts for key and value.
    ///
    /// # Errors
    /// One sentence if a text is malformed, or does not fit the columns.
    pub fn parse(schema: SchemaRef, key: &str, value: &str) -> Result<Self, String> {
        let key = parts(key, &schema)?;
        let value = match preset(value, &schema, &key)? {
            Some(value) => value,
            None => parts(value, &schema)?,
        };
        let mut bits = (0..).peekable();
        let has_bit = |(position, field): (usize, &FieldRef)| {
            field.is_nullable() && !value.iter().any(|part| part.is_member(position))
        };
        let nullable = schema.fields().iter().enumerate().map(has_bit);
        let layout = Self {
            null_bits: nullable
                .map(|nullable| bits.next_if(|_| nullable))
                .collect(),
            key,
            value,
            leaves_out_nulls: false,
            latin1: BTreeSet::new(),
            unsupported: BTreeMap::new(),
            nulls_what_is_malformed: false,
            name: String::new(),
            schema,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The same, but bytes that do not fit the layout are nulls, and rows with such bytes are counted.
    ///
    /// The columns in a key are null if the key does not fit the layout, and those in a value if the value does not. A
    /// single column is null if only its own bytes are not a value of its type.
    #[must_use]
    pub fn nulls_what_is_malformed(self) -> Self {
        let fields = self.schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            nulls_what_is_malformed: true,
            ..self
        }
    }

    /// The same, but errors of rows begin with a name of the table.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    fn check(&self) -> Result<(), String> {
        let all = || self.key.iter().chain(&self.value);
        for (position, field) in self.schema.fields().iter().enumerate() {
            let places = all().filter(|part| part.column == Some(position)).count();
            if places != 1 {
                let name = field.name();
                return Err(format!(
                    "column {name} is in {places} parts of the layout, not in one"
                ));
            }
        }
        let nulls: Vec<_> = all().filter_map(|part| part.form.null_bits()).collect();
        let nullable = self.null_bits.iter().flatten().count();
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
        Ok(())
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Why a column cannot be read, as a sentence; `None` if it can.
    pub fn unsupported(&self, position: usize) -> Option<String> {
        let why = self.unsupported.get(&position)?;
        Some(match self.name.as_str() {
            "" => why.clone(),
            name => format!("{name}: {why}"),
        })
    }

    /// Adds the instructions that compute a column, which can be read.
    pub fn column(&self, position: usize, push: Push<'_>) -> Register {
        let value = self.decoded(position, push);
        if !self.nulls_what_is_malformed {
            return value;
        }
        let has_column =
            |side: Side| (self.parts(side).iter()).any(|part| part.column == Some(position));
        let has_nulls =
            |side: Side| (self.parts(side).iter()).any(|part| part.form.null_bits().is_some());
        let is_needed = |side: &Side| {
            has_column(*side) || (self.null_bits[position].is_some() && has_nulls(*side))
        };
        let sides = Side::BOTH.into_iter().filter(is_needed);
        let conditions: Vec<_> = sides.flat_map(|side| self.conditions(side, push)).collect();
        let conditions = conditions.into_iter().map(|check| check.holds);
        let when = conditions.reduce(|left, right| push(Instruction::And(left, right)));
        let Some(when) = when else {
            return value;
        };
        let otherwise = push(Instruction::Constant(Literal::Null(self.kind(position))));
        push(Instruction::Select {
            when,
            then: value,
            otherwise,
        })
    }

    /// Kind of a column's values.
    fn kind(&self, position: usize) -> ValueKind {
        value_kind(self.schema.field(position).data_type()).unwrap_or(ValueKind::Bytes)
    }

    /// The parts of a key or a value.
    fn parts(&self, side: Side) -> &[Part] {
        match side {
            Side::Key => &self.key,
            Side::Value => &self.value,
        }
    }

    /// Adds the instructions that compute a column of a row that fits the layout.
    fn decoded(&self, position: usize, push: Push<'_>) -> Register {
        let find = |parts: &[Part]| parts.iter().position(|part| part.column == Some(position));
        let side = match find(&self.key) {
            Some(_) => Side::Key,
            None => Side::Value,
        };
        let from = push(side.bytes());
        let mut at = Cursor::START;
        for part in self.parts(side) {
            if part.column != Some(position) {
                at = self.after(part, from, at, push);
                continue;
            }
            let mut value = match part.form {
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
            if self.latin1.contains(&position) {
                value = push(Instruction::Latin1(value));
            }
            if self.is_any_text(position) {
                value = push(Instruction::Text(value));
            }
            let Some(bit) = self.null_bits[position] else {
                return value;
            };
            let when = self.is_null(bit, push);
            let then = push(Instruction::Constant(Literal::Null(self.kind(position))));
            return push(Instruction::Select {
                when,
                then,
                otherwise: value,
            });
        }
        // `check` has found each column.
        push(Instruction::Constant(Literal::Null(ValueKind::Bytes)))
    }

    /// Begin of the part behind another one.
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

    /// The number of spaces of a padded string, from the unpack info.
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
        for side in Side::BOTH {
            let parts = self.parts(side);
            let nulls = parts
                .iter()
                .position(|part| part.form.null_bits().is_some());
            let Some(nulls) = nulls else {
                continue;
            };
            let from = push(side.bytes());
            let before = parts[..nulls].iter();
            let at = before.fold(Cursor::START, |at, part| part.form.after(from, at, push));
            let at = at.bit(bit, from, push);
            return push(Instruction::Bit { from, at });
        }
        push(Instruction::Constant(Literal::Boolean(false)))
    }

    /// Whether a column is text that is null unless it is UTF-8. Otherwise DataFusion finds text that is not UTF-8.
    fn is_any_text(&self, position: usize) -> bool {
        self.nulls_what_is_malformed && is_text(self.schema.field(position).data_type())
    }

    /// Adds the conditions under which the bytes of a row fit the layout: no part runs past the end, no byte is left
    /// over, and the used columns have values of their types.
    pub fn checks(&self, used: &BTreeSet<usize>, push: Push<'_>) -> Vec<Check> {
        let conditions = Side::BOTH.into_iter();
        let mut checks: Vec<_> = conditions
            .flat_map(|side| self.conditions(side, push))
            .collect();
        for &position in used {
            let may_not_decode = |part: &Part| {
                part.column == Some(position)
                    && (part.form.may_not_decode() || self.is_any_text(position))
            };
            if !self.key.iter().chain(&self.value).any(may_not_decode) {
                continue;
            }
            let value = self.column(position, push);
            let is_null = push(Instruction::IsNull(value));
            let is_set = push(Instruction::Not(is_null));
            let may_be_null = self.may_be_null(position, push);
            let holds = match may_be_null {
                None => is_set,
                Some(is_null) => push(Instruction::Or(is_null, is_set)),
            };
            let what = format!(
                "the bytes of column {} are not a value of its type",
                self.schema.field(position).name()
            );
            checks.push(self.check_of(holds, what));
        }
        checks
    }

    /// Whether a row says that a column is null; `None` if it is never null.
    fn may_be_null(&self, position: usize, push: Push<'_>) -> Option<Register> {
        if let Some(bit) = self.null_bits[position] {
            return Some(self.is_null(bit, push));
        }
        let member = (self.value.iter()).find(|part| part.is_member(position))?;
        let Form::Member {
            name,
            is_nullable: true,
            ..
        } = &member.form
        else {
            return None;
        };
        let (from, takes) = (push(Instruction::Value), Json::Has(name.clone()));
        let has_it = push(Instruction::Json { from, takes });
        Some(push(Instruction::Not(has_it)))
    }

    fn check_of(&self, holds: Register, what: String) -> Check {
        let what = match self.name.as_str() {
            "" => what,
            name => format!("{name}: {what}"),
        };
        Check {
            holds,
            what,
            counts: self.nulls_what_is_malformed,
        }
    }

    /// Adds the conditions under which the bytes of a key or a value have the parts of the layout.
    fn conditions(&self, side: Side, push: Push<'_>) -> Vec<Check> {
        let (parts, name) = (self.parts(side), side.name());
        let others = match side {
            // Other keys are not read.
            Side::Key => self.leading_literals(),
            Side::Value => 0,
        };
        if matches!(
            parts,
            [Part {
                form: Form::Rest { behind: 0 },
                ..
            }]
        ) {
            return Vec::new();
        }
        let mut checks = Vec::new();
        let from = push(side.bytes());
        if matches!(
            parts,
            [
                Part {
                    form: Form::Member { .. },
                    ..
                },
                ..
            ]
        ) {
            let takes = Json::IsObject;
            let holds = push(Instruction::Json { from, takes });
            checks.push(self.check_of(holds, format!("the {name} is not a JSON object")));
            return checks;
        }
        let length = push(Instruction::Length(from));
        let (mut at, mut has_rest) = (Cursor::START, false);
        for (position, part) in parts.iter().enumerate() {
            let literal = match &part.form {
                Form::Literal(bytes) if position >= others => Some((
                    bytes.clone(),
                    format!("the {name} lacks a literal of the layout"),
                )),
                Form::RowVersion => Some((
                    vec![ROW_VERSION],
                    format!("the {name} is not a row of version {ROW_VERSION}, the newest known"),
                )),
                _ => None,
            };
            if let Some((bytes, what)) = literal {
                let found = Form::Bytes(bytes.len() as u32).value(from, at, push);
                let bytes = push(Instruction::Constant(Literal::Bytes(bytes)));
                let holds = push(Instruction::Compare {
                    comparison: Comparison::Equal,
                    left: found,
                    right: bytes,
                });
                checks.push(self.check_of(holds, what));
            }
            if let Form::Rest { behind } = part.form {
                let left = at.plus(behind, from, push).register(from, push);
                let holds = push(Instruction::Compare {
                    comparison: Comparison::LessOrEqual,
                    left,
                    right: length,
                });
                let what = format!("the layout runs past the end of the {name}");
                checks.push(self.check_of(holds, what));
                has_rest = true;
            }
            at = self.after(part, from, at, push);
        }
        if has_rest {
            return checks;
        }
        let left = at.register(from, push);
        let holds = push(Instruction::Compare {
            comparison: Comparison::Equal,
            left,
            right: length,
        });
        let what = format!(
            "the layout does not end with the {name}: it runs past its end, or leaves bytes over"
        );
        checks.push(self.check_of(holds, what));
        checks
    }
}

/// The two halves of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Key,
    Value,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Key, Self::Value];

    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
        }
    }

    fn bytes(self) -> Instruction {
        match self {
            Self::Key => Instruction::Key,
            Self::Value => Instruction::Value,
        }
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
