//! A plan in the kernels' form: steps, constants, and one pool of their bytes.

mod groups;

use std::collections::VecDeque;
use std::sync::Arc;

use rockmill_core::Lock;
use rockmill_core::scan::codes::{SCAN_CHECK, SCAN_REQUIRE};
use rockmill_core::scan::{
    Calendar, ColumnType, Comparison, Instruction, IntegerRange, Kernel, Literal, Number,
    NumberFormat, Pattern, PatternPart, Prefix, Register, ScanOutput, ScanPlan, Step, StringGroups,
    ValueKind,
};

use crate::driver::ffi::{self, SCAN_CONSTANT, SCAN_SLOTS, SOURCE_LITERAL, ScanConstant, ScanOp};
pub use groups::{EncodedGroups, SUM_WORDS};

/// A string without spaces except those in its groups.
const NO_SPACES: Literal = Literal::Integer(StringGroups::SPACES_OFFSET);

/// A plan in the kernels' form.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Steps of the filter, and then those for each selected row.
    pub ops: Vec<ScanOp>,
    pub num_filter: usize,
    /// Maximum number of results that a thread stores at a time.
    pub num_slots: u32,
    pub constants: Vec<ScanConstant>,
    pub literals: Vec<u8>,
    pub columns: Vec<EncodedColumn>,
    /// The groups' encoding, if the device can form them.
    pub groups: Option<EncodedGroups>,
}

/// A column that the kernels compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedColumn {
    pub register: Register,
    pub stored: ColumnType,
    pub operand: u32,
}

impl Encoded {
    /// The plan; `None` if it is malformed, if it is left to the CPU, or if it needs more results than a thread can
    /// store.
    pub fn new(plan: &ScanPlan) -> Option<Self> {
        if plan.left_to_cpu().is_some() {
            return None;
        }
        let schedule = plan.schedule().ok()?;
        // The filter has other slots than the output, which computes again what it needs of the filter's results.
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

/// The plans of the last scans in the kernels' form, so that each is encoded once: a backend is asked about the support
/// and the memory of a plan several times before its tasks run.
#[derive(Debug, Default)]
pub struct Encodings(Lock<VecDeque<(ScanPlan, Option<Arc<Encoded>>)>>);

impl Encodings {
    /// More plans than run at a time.
    const MAX: usize = 16;
    /// Plans with long lists of constants are not kept, because the device stays open for longer than a statement.
    const MAX_BYTES: usize = 64 << 10;

    /// The plan, as of [`Encoded::new`].
    pub fn of(&self, plan: &ScanPlan) -> Option<Arc<Encoded>> {
        if let Some((_, encoded)) = self.0.lock().iter().find(|(other, _)| other == plan) {
            return encoded.clone();
        }
        let encoded = Encoded::new(plan).map(Arc::new);
        let bytes = encoded.as_ref().map_or(0, |encoded| encoded.bytes());
        if bytes > Self::MAX_BYTES {
            return encoded;
        }
        let mut known = self.0.lock();
        if known.len() == Self::MAX {
            known.pop_front();
        }
        known.push_back((plan.clone(), encoded.clone()));
        encoded
    }
}

impl Encoded {
    /// Bytes of its steps and constants.
    fn bytes(&self) -> usize {
        size_of_val(&*self.ops) + size_of_val(&*self.constants) + self.literals.len()
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
                self.operands[register] = Some(self.constant(literal) | SCAN_CONSTANT);
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

    /// Adds steps. A result has its slot until its last use; those in `kept` until the end.
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
                    code: SCAN_CHECK,
                    a: self.operand(self.plan.checks[check].holds)?,
                    detail: u32::from(self.plan.checks[check].counts),
                    ..ScanOp::default()
                },
                Step::Require(register) => ScanOp {
                    code: SCAN_REQUIRE,
                    a: self.operand(register)?,
                    ..ScanOp::default()
                },
                Step::Compute(register) => self.op(register)?,
            };
            self.encoded.ops.push(op);
            for register in self.uses(*step) {
                let last_use = &mut last_uses[usize::from(register)];
                if *last_use == at {
                    // An operand may occur twice.
                    *last_use = NEVER;
                    free.extend(
                        self.operand(register)
                            .filter(|slot| slot & SCAN_CONSTANT == 0),
                    );
                }
            }
            if let Step::Compute(register) = *step {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                if slots > SCAN_SLOTS {
                    return None;
                }
                self.encoded.num_slots = self.encoded.num_slots.max(slots);
                self.operands[usize::from(register)] = Some(slot);
                if let Some(op) = self.encoded.ops.last_mut() {
                    op.to = slot;
                }
            }
        }
        Some(())
    }

    /// The operands of a step.
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
        let instruction = &plan.instructions[usize::from(register)];
        // Constants are not computed.
        let Kernel::Step(code) = instruction.kernel() else {
            return None;
        };
        let mut op = ScanOp {
            code,
            ..ScanOp::default()
        };
        let operands = [&mut op.a, &mut op.b, &mut op.c].into_iter();
        for (operand, of) in operands.zip(instruction.operands()) {
            *operand = of.map_or(Some(0), |of| self.operand(of))?;
        }
        self.detail(instruction, &mut op);
        Some(op)
    }

    /// Adds what a step has besides its code and its operands.
    fn detail(&mut self, instruction: &Instruction, op: &mut ScanOp) {
        let kind = |register: Register| kind_code(self.kinds[usize::from(register)]);
        match instruction {
            Instruction::Load { number, .. } => op.detail = number_detail(*number),
            Instruction::Prefixed { prefix, .. } => op.detail = prefix_detail(*prefix),
            Instruction::AfterPrefixed { prefix, count, .. } => {
                (op.c, op.detail) = (u32::from(*count), prefix_detail(*prefix));
            }
            Instruction::Decimal { decimal, .. } => {
                op.detail = u32::from(decimal.precision) << 8 | u32::from(decimal.scale);
            }
            Instruction::Date { calendar, .. } => {
                op.detail = u32::from(*calendar == Calendar::Second);
            }
            Instruction::String { groups, spaces, .. } => {
                op.detail = groups_detail(*groups);
                if spaces.is_none() {
                    op.c = SCAN_CONSTANT | self.constant(&NO_SPACES);
                }
            }
            Instruction::StringSize { groups, .. } => op.detail = groups_detail(*groups),
            Instruction::Compare {
                comparison, left, ..
            } => op.detail = kind(*left) << 8 | accepted(*comparison),
            Instruction::Like { pattern, .. } => {
                (op.detail, op.b, op.c) = self.pattern(pattern);
            }
            Instruction::OneOf { of, values } => {
                op.detail = kind(*of);
                (op.b, op.c) = self.list(values.iter());
            }
            Instruction::Arithmetic { range, .. } => op.detail = range_detail(*range),
            // Others have operands alone.
            _ => {}
        }
    }

    /// `types.hpp:Pattern`, and the constants of its parts.
    fn pattern(&mut self, pattern: &Pattern) -> (u32, u32, u32) {
        let bytes = |bytes: &[u8]| Literal::Bytes(bytes.to_vec());
        let (detail, part) = match pattern {
            Pattern::Prefix(part) => (ffi::PATTERN_PREFIX, part),
            Pattern::Suffix(part) => (ffi::PATTERN_SUFFIX, part),
            Pattern::Contains(part) => (ffi::PATTERN_CONTAINS, part),
            Pattern::Parts(parts) => {
                let first = self.encoded.constants.len() as u32;
                for part in parts {
                    let (part, own) = match part {
                        PatternPart::Bytes(own) => (ffi::PART_BYTES, own.as_slice()),
                        PatternPart::AnyCharacter => (ffi::PART_ANY_CHARACTER, &[][..]),
                        PatternPart::AnyBytes => (ffi::PART_ANY_BYTES, &[][..]),
                    };
                    let at = self.constant(&bytes(own)) as usize;
                    self.encoded.constants[at].part = part;
                }
                return (ffi::PATTERN_PARTS, first, parts.len() as u32);
            }
        };
        (detail, self.constant(&bytes(part)), 1)
    }

    /// The columns of rows; for groups the columns of keys and arguments, each value once.
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

fn kind_code(kind: ValueKind) -> u32 {
    match kind {
        ValueKind::Boolean => ffi::KIND_BOOLEAN,
        ValueKind::Integer => ffi::KIND_INTEGER,
        ValueKind::Bytes => ffi::KIND_BYTES,
    }
}

fn number_detail(number: Number) -> u32 {
    let format = match number.format {
        NumberFormat::Unsigned => ffi::NUMBER_UNSIGNED,
        NumberFormat::Signed => ffi::NUMBER_SIGNED,
        NumberFormat::SignedInverted => ffi::NUMBER_SIGNED_INVERTED,
        NumberFormat::Float => ffi::NUMBER_FLOAT,
    };
    format << 16 | u32::from(number.is_big_endian) << 8 | u32::from(number.bytes)
}

/// The encoding of a number, or 0 for LEB128.
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
    let (range, bytes) = match range {
        IntegerRange::WrapSigned { bytes } => (ffi::RANGE_SIGNED, bytes),
        IntegerRange::WrapUnsigned { bytes } => (ffi::RANGE_UNSIGNED, bytes),
        IntegerRange::Exact => (ffi::RANGE_EXACT, 0),
    };
    range << 8 | u32::from(bytes)
}

/// One bit each for less, equal and greater.
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

/// Number of bytes that suffice for every result of an instruction, as two's complement.
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
    use rockmill_core::scan::{Operation, OutputColumn};

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
        let steps = 3 * SCAN_SLOTS as usize;
        let encoded = Encoded::new(&sums(steps, &[steps as Register + 1])).expect("a few slots");
        assert_eq!(encoded.ops.iter().map(|op| op.to).max(), Some(0));
        // The first result is needed at the end.
        let encoded = Encoded::new(&sums(9, &[10, 1])).expect("a few slots");
        assert_eq!(encoded.ops.iter().map(|op| op.to).max(), Some(1));
        assert_ne!(encoded.columns[0].operand, encoded.columns[1].operand);
        let all = |len: u32| (1..=len as Register).collect::<Vec<_>>();
        assert!(Encoded::new(&sums(steps, &all(SCAN_SLOTS))).is_some());
        assert!(Encoded::new(&sums(steps, &all(SCAN_SLOTS + 1))).is_none());
    }

    #[test]
    fn a_plan_is_encoded_once_until_many_others_were() {
        let encodings = Encodings::default();
        let of = |steps| encodings.of(&sums(steps, &[1])).expect("a few slots");
        let first = of(9);
        assert!(Arc::ptr_eq(&first, &of(9)));
        (10..10 + Encodings::MAX).for_each(|steps| drop(of(steps)));
        let again = of(9);
        assert!(!Arc::ptr_eq(&first, &again) && first.ops.len() == again.ops.len());
    }
}
