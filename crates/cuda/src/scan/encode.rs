//! A plan as the kernels take it: steps, constants, and one pool of their bytes.

mod groups;

use rockmill_core::scan::{
    Calendar, ColumnType, Comparison, Instruction, IntegerRange, Literal, Number, NumberFormat,
    Operation, Pattern, PatternPart, Prefix, Register, ScanOutput, ScanPlan, Step, StringGroups,
    ValueKind,
};

use crate::driver::ffi::{ScanConstant, ScanOp};
pub use groups::{EncodedGroups, SUM_WORDS};

/// `types.hpp:SCAN_SLOTS`.
const SLOTS: u32 = 64;

/// `types.hpp:SCAN_CONSTANT`.
const CONSTANT: u32 = 1 << 31;

/// `types.hpp:SOURCE_LITERAL`.
const SOURCE_LITERAL: u64 = 2;

/// A string that has no spaces except those in its groups.
const NO_SPACES: Literal = Literal::Integer(StringGroups::SPACES_OFFSET);

/// `types.hpp:ScanCode`.
mod code {
    pub const KEY: u32 = 0;
    pub const VALUE: u32 = 1;
    pub const LENGTH: u32 = 2;
    pub const LOAD: u32 = 3;
    pub const SLICE: u32 = 4;
    pub const COMPARE: u32 = 5;
    pub const AND: u32 = 6;
    pub const OR: u32 = 7;
    pub const NOT: u32 = 8;
    pub const IS_NULL: u32 = 9;
    pub const LIKE: u32 = 10;
    pub const ONE_OF: u32 = 11;
    pub const ADD: u32 = 12;
    pub const SUBTRACT: u32 = 13;
    pub const MULTIPLY: u32 = 14;
    pub const REQUIRE: u32 = 15;
    pub const CHECK: u32 = 16;
    pub const PREFIXED: u32 = 17;
    pub const AFTER_PREFIXED: u32 = 18;
    pub const BIT: u32 = 19;
    pub const SELECT: u32 = 20;
    pub const DECIMAL: u32 = 21;
    pub const DATE: u32 = 22;
    pub const STRING_SIZE: u32 = 23;
    pub const TRIM_END: u32 = 24;
    pub const TEXT: u32 = 25;
    pub const STRING: u32 = 26;
}

/// A plan in the kernels' form.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Steps of the filter, and then those for each wanted row.
    pub ops: Vec<ScanOp>,
    pub num_filter: usize,
    pub constants: Vec<ScanConstant>,
    pub literals: Vec<u8>,
    pub columns: Vec<EncodedColumn>,
    /// How the device puts groups together, if it can.
    pub groups: Option<EncodedGroups>,
}

/// A column that the kernels make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedColumn {
    pub register: Register,
    pub stored: ColumnType,
    pub operand: u32,
}

impl Encoded {
    /// The plan; `None` if it is malformed, if it is left to the CPU, or if a thread cannot keep so many results.
    pub fn new(plan: &ScanPlan) -> Option<Self> {
        if plan.left_to_cpu().is_some() {
            return None;
        }
        let schedule = plan.schedule().ok()?;
        // The filter has other slots than the output, which computes anew what it needs of the filter's results.
        let unfiltered = ScanPlan {
            checks: Vec::new(),
            filter: None,
            ..plan.clone()
        };
        let output: Vec<_> = (unfiltered.schedule().ok()?.output.into_iter())
            .map(Step::Compute)
            .collect();
        let mut encoder = Encoder {
            plan,
            kinds: &schedule.kinds,
            encoded: Self::default(),
            operands: vec![None; plan.instructions.len()],
        };
        encoder.constants();
        encoder.steps(&schedule.filter, &[])?;
        encoder.encoded.num_filter = encoder.encoded.ops.len();
        encoder.steps(&output, &plan.output.registers())?;
        encoder.columns()?;
        if let ScanOutput::Groups(aggregation) = &plan.output {
            encoder.encoded.groups = encoder.groups(aggregation);
        }
        Some(encoder.encoded)
    }
}

struct Encoder<'a> {
    plan: &'a ScanPlan,
    kinds: &'a [ValueKind],
    encoded: Encoded,
    /// Slot or constant of each instruction.
    operands: Vec<Option<u32>>,
}

impl Encoder<'_> {
    fn constants(&mut self) {
        for (register, instruction) in self.plan.instructions.iter().enumerate() {
            if let Instruction::Constant(literal) = instruction {
                self.operands[register] = Some(self.constant(literal) | CONSTANT);
            }
        }
    }

    /// Adds a constant and returns its position.
    fn constant(&mut self, literal: &Literal) -> u32 {
        let constant = match literal {
            Literal::Null(_) => ScanConstant::default(),
            Literal::Boolean(is_true) => set(u64::from(*is_true), 0),
            Literal::Integer(integer) => set(*integer as u64, (*integer >> u64::BITS) as u64),
            Literal::Bytes(bytes) => {
                let at = self.encoded.literals.len() as u64;
                self.encoded.literals.extend_from_slice(bytes);
                set((bytes.len() as u64) << u32::BITS | at, SOURCE_LITERAL)
            }
        };
        self.encoded.constants.push(constant);
        self.encoded.constants.len() as u32 - 1
    }

    /// Adds constants one after another, and returns the position of the first and their number.
    fn list<'l>(&mut self, literals: impl Iterator<Item = &'l Literal>) -> (u32, u32) {
        let first = self.encoded.constants.len() as u32;
        for literal in literals {
            self.constant(literal);
        }
        (first, self.encoded.constants.len() as u32 - first)
    }

    /// Adds steps. A result has its slot until its last use, of `kept` until the end.
    fn steps(&mut self, steps: &[Step], kept: &[Register]) -> Option<()> {
        const NEVER: usize = usize::MAX;
        let mut last_uses = vec![NEVER; self.operands.len()];
        for (at, step) in steps.iter().enumerate() {
            for register in self.uses(*step) {
                last_uses[usize::from(register)] = at;
            }
        }
        for register in kept {
            last_uses[usize::from(*register)] = NEVER;
        }
        let (mut free, mut slots) = (Vec::new(), 0);
        for (at, step) in steps.iter().enumerate() {
            let op = match *step {
                Step::Check(check) => ScanOp {
                    code: code::CHECK,
                    a: self.operand(self.plan.checks[check].holds)?,
                    detail: u32::from(self.plan.checks[check].counts),
                    ..ScanOp::default()
                },
                Step::Require(register) => ScanOp {
                    code: code::REQUIRE,
                    a: self.operand(register)?,
                    ..ScanOp::default()
                },
                Step::Compute(register) => self.op(register)?,
            };
            self.encoded.ops.push(op);
            for register in self.uses(*step) {
                let last_use = &mut last_uses[usize::from(register)];
                if *last_use == at {
                    // An operand may be there twice.
                    *last_use = NEVER;
                    free.extend(self.operand(register).filter(|slot| slot & CONSTANT == 0));
                }
            }
            if let Step::Compute(register) = *step {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                if slots > SLOTS {
                    return None;
                }
                self.operands[usize::from(register)] = Some(slot);
                if let Some(op) = self.encoded.ops.last_mut() {
                    op.to = slot;
                }
            }
        }
        Some(())
    }

    /// The values that a step takes.
    fn uses(&self, step: Step) -> impl Iterator<Item = Register> + use<> {
        let operands = match step {
            Step::Check(check) => [Some(self.plan.checks[check].holds), None, None],
            Step::Require(register) => [Some(register), None, None],
            Step::Compute(register) => self.plan.instructions[usize::from(register)].operands(),
        };
        operands.into_iter().flatten()
    }

    fn operand(&self, register: Register) -> Option<u32> {
        self.operands[usize::from(register)]
    }

    fn op(&mut self, register: Register) -> Option<ScanOp> {
        let plan = self.plan;
        let kind = |register: Register| self.kinds[usize::from(register)] as u32;
        let op = |code, a, b, c, detail| ScanOp {
            code,
            to: 0,
            a,
            b,
            c,
            detail,
        };
        Some(match &plan.instructions[usize::from(register)] {
            Instruction::Key => op(code::KEY, 0, 0, 0, 0),
            Instruction::Value => op(code::VALUE, 0, 0, 0, 0),
            // Constants are not computed.
            Instruction::Constant(_) => return None,
            Instruction::Length(of) => op(code::LENGTH, self.operand(*of)?, 0, 0, 0),
            Instruction::Load { from, at, number } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                op(code::LOAD, from, at, 0, number_detail(*number))
            }
            Instruction::Slice { from, at, length } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                op(code::SLICE, from, at, self.operand(*length)?, 0)
            }
            Instruction::Prefixed { from, at, prefix } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                op(code::PREFIXED, from, at, 0, prefix_detail(*prefix))
            }
            Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                let (count, detail) = (u32::from(*count), prefix_detail(*prefix));
                op(code::AFTER_PREFIXED, from, at, count, detail)
            }
            Instruction::Bit { from, at } => {
                op(code::BIT, self.operand(*from)?, self.operand(*at)?, 0, 0)
            }
            Instruction::Decimal { from, at, decimal } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                let detail = u32::from(decimal.precision) << 8 | u32::from(decimal.scale);
                op(code::DECIMAL, from, at, 0, detail)
            }
            Instruction::Date { of, calendar } => {
                let detail = match calendar {
                    Calendar::Day => 0,
                    Calendar::Second => 1,
                };
                op(code::DATE, self.operand(*of)?, 0, 0, detail)
            }
            Instruction::String {
                from,
                at,
                groups,
                spaces,
            } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                let spaces = match spaces {
                    Some(spaces) => self.operand(*spaces)?,
                    None => CONSTANT | self.constant(&NO_SPACES),
                };
                op(code::STRING, from, at, spaces, groups_detail(*groups))
            }
            Instruction::StringSize { from, at, groups } => {
                let (from, at) = (self.operand(*from)?, self.operand(*at)?);
                op(code::STRING_SIZE, from, at, 0, groups_detail(*groups))
            }
            // `ScanPlan::left_to_cpu` says so.
            Instruction::Json { .. } | Instruction::Latin1(_) => return None,
            Instruction::TrimEnd(of) => op(code::TRIM_END, self.operand(*of)?, 0, 0, 0),
            Instruction::Text(of) => op(code::TEXT, self.operand(*of)?, 0, 0, 0),
            Instruction::Select {
                when,
                then,
                otherwise,
            } => {
                let (when, then) = (self.operand(*when)?, self.operand(*then)?);
                op(code::SELECT, when, then, self.operand(*otherwise)?, 0)
            }
            Instruction::Compare {
                comparison,
                left,
                right,
            } => {
                let detail = kind(*left) << 8 | accepted(*comparison);
                let (left, right) = (self.operand(*left)?, self.operand(*right)?);
                op(code::COMPARE, left, right, 0, detail)
            }
            Instruction::And(left, right) => {
                op(code::AND, self.operand(*left)?, self.operand(*right)?, 0, 0)
            }
            Instruction::Or(left, right) => {
                op(code::OR, self.operand(*left)?, self.operand(*right)?, 0, 0)
            }
            Instruction::Not(of) => op(code::NOT, self.operand(*of)?, 0, 0, 0),
            Instruction::IsNull(of) => op(code::IS_NULL, self.operand(*of)?, 0, 0, 0),
            Instruction::Like { of, pattern } => {
                let of = self.operand(*of)?;
                let (detail, first, count) = self.pattern(pattern);
                op(code::LIKE, of, first, count, detail)
            }
            Instruction::OneOf { of, values } => {
                let (detail, of) = (kind(*of), self.operand(*of)?);
                let (first, count) = self.list(values.iter());
                op(code::ONE_OF, of, first, count, detail)
            }
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range,
            } => {
                let code = match operation {
                    Operation::Add => code::ADD,
                    Operation::Subtract => code::SUBTRACT,
                    Operation::Multiply => code::MULTIPLY,
                };
                let (left, right) = (self.operand(*left)?, self.operand(*right)?);
                op(code, left, right, 0, range_detail(*range))
            }
        })
    }

    /// `types.hpp:Pattern`, and the constants of its parts.
    fn pattern(&mut self, pattern: &Pattern) -> (u32, u32, u32) {
        let bytes = |bytes: &[u8]| Literal::Bytes(bytes.to_vec());
        let (detail, part) = match pattern {
            Pattern::Prefix(part) => (0, part),
            Pattern::Suffix(part) => (1, part),
            Pattern::Contains(part) => (2, part),
            Pattern::Parts(parts) => {
                let first = self.encoded.constants.len() as u32;
                for part in parts {
                    let (part, own) = match part {
                        PatternPart::Bytes(own) => (0, own.as_slice()),
                        PatternPart::AnyCharacter => (1, &[][..]),
                        PatternPart::AnyBytes => (2, &[][..]),
                    };
                    let at = self.constant(&bytes(own)) as usize;
                    self.encoded.constants[at].part = part;
                }
                return (3, first, parts.len() as u32);
            }
        };
        (detail, self.constant(&bytes(part)), 1)
    }

    /// The columns of rows; of groups those that they are made of, each value once.
    fn columns(&mut self) -> Option<()> {
        if let ScanOutput::Rows(columns) = &self.plan.output {
            for column in columns {
                self.column(column.register, column.stored)?;
            }
            return Some(());
        }
        let mut registers = self.plan.output.registers();
        registers.sort_unstable();
        registers.dedup();
        for register in registers {
            let stored = match self.kinds[usize::from(register)] {
                ValueKind::Boolean => ColumnType::Boolean,
                ValueKind::Bytes => ColumnType::Bytes,
                ValueKind::Integer => ColumnType::Integer {
                    bytes: integer_bytes(&self.plan.instructions[usize::from(register)]),
                },
            };
            self.column(register, stored)?;
        }
        Some(())
    }

    fn column(&mut self, register: Register, stored: ColumnType) -> Option<()> {
        let operand = self.operand(register)?;
        self.encoded.columns.push(EncodedColumn {
            register,
            stored,
            operand,
        });
        Some(())
    }
}

fn set(low: u64, high: u64) -> ScanConstant {
    ScanConstant {
        low,
        high,
        is_set: 1,
        part: 0,
    }
}

fn number_detail(number: Number) -> u32 {
    let format = match number.format {
        NumberFormat::Unsigned => 0,
        NumberFormat::Signed => 1,
        NumberFormat::SignedInverted => 2,
        NumberFormat::Float => 3,
    };
    format << 16 | u32::from(number.is_big_endian) << 8 | u32::from(number.bytes)
}

/// That of a number, or 0 for LEB128.
fn prefix_detail(prefix: Prefix) -> u32 {
    match prefix {
        Prefix::Varint => 0,
        Prefix::Number(number) => number_detail(number),
    }
}

/// The bytes of a padded group, or 0.
fn groups_detail(groups: StringGroups) -> u32 {
    match groups {
        StringGroups::Counted => 0,
        StringGroups::Padded { bytes } => u32::from(bytes),
    }
}

fn range_detail(range: IntegerRange) -> u32 {
    match range {
        IntegerRange::WrapSigned { bytes } => u32::from(bytes),
        IntegerRange::WrapUnsigned { bytes } => 1 << 8 | u32::from(bytes),
        IntegerRange::Exact => 2 << 8,
    }
}

/// A bit for each of less, equal and greater.
fn accepted(comparison: Comparison) -> u32 {
    match comparison {
        Comparison::Less => 0b001,
        Comparison::Equal => 0b010,
        Comparison::LessOrEqual => 0b011,
        Comparison::Greater => 0b100,
        Comparison::NotEqual => 0b101,
        Comparison::GreaterOrEqual => 0b110,
    }
}

/// Bytes that every result of an instruction fits, as two's complement.
fn integer_bytes(instruction: &Instruction) -> u8 {
    match instruction {
        Instruction::Length(_) => 8,
        Instruction::Load { number, .. } if number.format == NumberFormat::Unsigned => {
            (2 * number.bytes).next_power_of_two()
        }
        Instruction::Load { number, .. } => number.bytes.next_power_of_two(),
        Instruction::Arithmetic { range, .. } => match range {
            IntegerRange::WrapSigned { bytes } => *bytes,
            IntegerRange::WrapUnsigned { bytes } => 2 * bytes,
            IntegerRange::Exact => 16,
        },
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::scan::OutputColumn;

    use super::*;

    const TYPE: ColumnType = ColumnType::Integer { bytes: 8 };

    /// A length, added to itself again and again.
    fn sums(steps: usize, outputs: &[Register]) -> ScanPlan {
        let add = |left, right| Instruction::Arithmetic {
            operation: Operation::Add,
            left,
            right,
            range: IntegerRange::Exact,
        };
        let mut instructions = vec![Instruction::Value, Instruction::Length(0)];
        for last in 1..=steps as Register {
            instructions.push(add(last, last));
        }
        let column = |&register| OutputColumn {
            register,
            stored: TYPE,
        };
        ScanPlan {
            instructions,
            output: ScanOutput::Rows(outputs.iter().map(column).collect()),
            ..ScanPlan::default()
        }
    }

    #[test]
    fn results_share_slots_unless_they_are_still_needed() {
        let steps = 3 * SLOTS as usize;
        let encoded = Encoded::new(&sums(steps, &[steps as Register + 1])).expect("a few slots");
        assert_eq!(encoded.ops.iter().map(|op| op.to).max(), Some(0));
        // The first result is needed at the end.
        let encoded = Encoded::new(&sums(9, &[10, 1])).expect("a few slots");
        assert_eq!(encoded.ops.iter().map(|op| op.to).max(), Some(1));
        assert_ne!(encoded.columns[0].operand, encoded.columns[1].operand);
        let all = |len: u32| (1..=len as Register).collect::<Vec<_>>();
        assert!(Encoded::new(&sums(steps, &all(SLOTS))).is_some());
        assert!(Encoded::new(&sums(steps, &all(SLOTS + 1))).is_none());
    }
}
