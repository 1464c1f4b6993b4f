//! Checks whether a plan can be run: backends rely on it.

use super::instructions::Kind;
use super::{
    Aggregate, Check, ColumnType, Instruction, IntegerRange, Literal, MAX_INSTRUCTIONS, Number,
    NumberFormat, OutputColumn, Prefix, Register, ScanOutput, ScanPlan, StringGroups, ValueKind,
};
use crate::error::{Error, ErrorKind, Result};

impl ScanPlan {
    /// The kind of each instruction's result.
    ///
    /// # Errors
    /// Internal if an operand is not an earlier result of the kind that the instruction takes, or if a size is not
    /// allowed by the documentation of its type.
    pub fn kinds(&self) -> Result<Vec<ValueKind>> {
        if self.instructions.len() > MAX_INSTRUCTIONS {
            return Err(malformed(format!(
                "it has {} instructions; the most are {MAX_INSTRUCTIONS}",
                self.instructions.len()
            )));
        }
        let mut kinds = Kinds(Vec::with_capacity(self.instructions.len()));
        for instruction in &self.instructions {
            let kind = kinds.result(instruction)?;
            kinds.0.push(kind);
        }
        for check in &self.checks {
            kinds.expect(check.holds, ValueKind::Boolean)?;
        }
        if let Some(filter) = self.filter {
            kinds.expect(filter, ValueKind::Boolean)?;
        }
        match &self.output {
            ScanOutput::Rows(columns) => kinds.columns(columns)?,
            ScanOutput::Groups(aggregation) => {
                kinds.columns(&aggregation.keys)?;
                aggregation
                    .aggregates
                    .iter()
                    .try_for_each(|aggregate| kinds.aggregate(aggregate))?;
                if aggregation.max_groups == 0 {
                    return Err(malformed("it keeps no group"));
                }
            }
        }
        Ok(kinds.0)
    }
}

impl Check {
    /// The error of a row that fails.
    pub fn failed(&self, user_key: &[u8]) -> Error {
        /// Longer keys are cut.
        const MAX_BYTES: usize = 64;
        let shown = &user_key[..user_key.len().min(MAX_BYTES)];
        let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
        let dots = if shown.len() < user_key.len() {
            ".."
        } else {
            ""
        };
        let what = format!("{} (key 0x{digits}{dots})", self.what);
        Error::new(ErrorKind::Corruption, what)
    }
}

impl Literal {
    /// Its kind.
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Null(kind) => *kind,
            Self::Boolean(_) => ValueKind::Boolean,
            Self::Integer(_) => ValueKind::Integer,
            Self::Bytes(_) => ValueKind::Bytes,
        }
    }
}

fn malformed(what: impl AsRef<str>) -> Error {
    Error::internal(format!(
        "the plan of a scan is malformed: {}",
        what.as_ref()
    ))
}

/// Kinds of the results so far.
struct Kinds(Vec<ValueKind>);

impl Kinds {
    fn of(&self, register: Register) -> Result<ValueKind> {
        let kind = self.0.get(usize::from(register));
        kind.copied()
            .ok_or_else(|| malformed(format!("register {register} is not computed before")))
    }

    fn expect(&self, register: Register, kind: ValueKind) -> Result<()> {
        let found = self.of(register)?;
        if found == kind {
            return Ok(());
        }
        Err(malformed(format!(
            "register {register} is {found:?}, not {kind:?}"
        )))
    }

    fn result(&self, instruction: &Instruction) -> Result<ValueKind> {
        let declared = instruction.declared();
        let operands: Vec<_> = declared.operands.into_iter().flatten().collect();
        let of = |kind: Kind| match kind {
            Kind::Is(kind) => Ok(kind),
            Kind::Contiguous => Ok(ValueKind::Bytes),
            Kind::Operand(at) => self.of(operands[at].0),
        };
        for (register, kind) in &operands {
            self.expect(*register, of(*kind)?)?;
        }
        match instruction {
            Instruction::Load { number, .. } => check_number(*number)?,
            Instruction::AfterPrefixed { count: 0, .. } => {
                return Err(malformed("an offset behind no bytes"));
            }
            Instruction::Prefixed { prefix, .. } | Instruction::AfterPrefixed { prefix, .. } => {
                check_prefix(*prefix)?;
            }
            Instruction::Decimal { decimal, .. } if !decimal.is_known() => {
                return Err(malformed(format!("{decimal:?} is not a decimal")));
            }
            Instruction::String { groups, .. } | Instruction::StringSize { groups, .. } => {
                check_groups(*groups)?;
            }
            Instruction::Json { takes, .. } if !takes.is_known() => {
                return Err(malformed(format!("{takes:?} is not a member of JSON")));
            }
            Instruction::OneOf { of, values } => {
                let kind = self.of(*of)?;
                let is_of_kind =
                    |value: &Literal| value.kind() == kind && !matches!(value, Literal::Null(_));
                if !values.iter().all(is_of_kind) || !values.is_sorted_by(|a, b| a < b) {
                    return Err(malformed("a list does not ascend or is of another kind"));
                }
            }
            Instruction::Arithmetic { range, .. } => check_range(*range)?,
            _ => {}
        }
        of(declared.returns)
    }

    fn columns(&self, columns: &[OutputColumn]) -> Result<()> {
        columns.iter().try_for_each(|column| self.column(*column))
    }

    fn column(&self, column: OutputColumn) -> Result<()> {
        let (kind, is_known) = match column.stored {
            ColumnType::Boolean => (ValueKind::Boolean, true),
            ColumnType::Integer { bytes } => (ValueKind::Integer, is_integer_size(bytes)),
            ColumnType::Float { bytes } => (ValueKind::Integer, is_float_size(bytes)),
            ColumnType::Bytes => (ValueKind::Bytes, true),
        };
        if !is_known {
            return Err(malformed(format!("{:?} is not a column", column.stored)));
        }
        self.expect(column.register, kind)
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<()> {
        match *aggregate {
            Aggregate::Count(None) => Ok(()),
            Aggregate::Count(Some(of)) => self.of(of).map(|_| ()),
            Aggregate::Sum { of, range, stored } => {
                check_range(range)?;
                if !matches!(stored, ColumnType::Integer { .. }) {
                    return Err(malformed(format!("{stored:?} is not a sum")));
                }
                let register = of;
                self.column(OutputColumn { register, stored })
            }
            Aggregate::Min(column) | Aggregate::Max(column) => self.column(column),
        }
    }
}

fn is_integer_size(bytes: u8) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8 | 16)
}

pub(super) fn is_float_size(bytes: u8) -> bool {
    matches!(bytes, 4 | 8)
}

fn check_number(number: Number) -> Result<()> {
    let is_known = match number.format {
        NumberFormat::Unsigned => matches!(number.bytes, 1..=8),
        NumberFormat::Signed | NumberFormat::SignedInverted => matches!(number.bytes, 1..=8 | 16),
        NumberFormat::Float => is_float_size(number.bytes),
    };
    match is_known {
        true => Ok(()),
        false => Err(malformed(format!("{number:?} is not a number"))),
    }
}

fn check_prefix(prefix: Prefix) -> Result<()> {
    match prefix {
        Prefix::Varint => Ok(()),
        Prefix::Number(number) if number.format == NumberFormat::Unsigned => check_number(number),
        Prefix::Number(number) => Err(malformed(format!("{number:?} is not a length"))),
    }
}

fn check_groups(groups: StringGroups) -> Result<()> {
    match groups {
        StringGroups::Padded { bytes: 0 } => Err(malformed("a string has groups of 0 bytes")),
        StringGroups::Padded { .. } | StringGroups::Counted => Ok(()),
    }
}

fn check_range(range: IntegerRange) -> Result<()> {
    let is_known = match range {
        IntegerRange::WrapSigned { bytes } => is_integer_size(bytes),
        IntegerRange::WrapUnsigned { bytes } => is_integer_size(bytes) && bytes < 16,
        IntegerRange::Exact => true,
    };
    match is_known {
        true => Ok(()),
        false => Err(malformed(format!("{range:?} is not a range"))),
    }
}
