//! The values of a program that depend on the bytes of a row alone: those that are kept as columns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rockmill_core::Result;
use rockmill_core::columns::Expression;
use rockmill_core::scan::{
    Instruction, IntegerRange, Json, JsonType, Literal, Operation, Register, ScanPlan, Schedule,
    Step,
};

use super::program::{Op, Program};
use super::unselected::Conditions;

/// Maximum instructions of the names of all columns. The offset of a column may depend on all columns before it.
const MAX_NAME_INSTRUCTIONS: usize = 1 << 13;

/// The columns of a plan, and its program over them.
#[derive(Debug)]
pub struct Leaves {
    /// The registers of the columns.
    pub registers: Vec<Register>,
    /// Their names.
    pub expressions: Vec<Expression>,
    /// The steps that compute them from the bytes of rows. They do not fail.
    pub parsing: Vec<Op>,
    /// The steps that compute all the rest.
    pub program: Arc<Program>,
    /// Finds groups without selected rows.
    pub conditions: Conditions,
}

impl Leaves {
    /// The columns of a plan; `None` if it has some whose computation may fail, or whose names are too long.
    ///
    /// # Errors
    /// Internal if the plan is malformed.
    pub fn of(plan: &ScanPlan) -> Result<Option<Self>> {
        let schedule = plan.schedule()?;
        let found = find(plan, &schedule);
        let below = reach(plan, found.iter().copied(), &BTreeSet::new());
        // Padded strings are far larger than what is stored.
        if plan.pads() || may_fail(plan, &below) {
            return Ok(None);
        }
        let mut expressions = Vec::with_capacity(found.len());
        let mut instructions = 0;
        for leaf in &found {
            expressions.push(expression(plan, *leaf));
            instructions += expressions.last().map_or(0, |last| last.len());
            if instructions > MAX_NAME_INSTRUCTIONS {
                return Ok(None);
            }
        }
        let is_computed = |register: &Register| {
            !matches!(
                plan.instructions[usize::from(*register)],
                Instruction::Constant(_)
            )
        };
        let parsing = Schedule {
            output: below.into_iter().filter(is_computed).collect(),
            ..Schedule::default()
        };
        let rest = reach(plan, roots(plan, &schedule), &found);
        let is_left = |register: &Register| rest.contains(register) && !found.contains(register);
        let rest = Schedule {
            kinds: Vec::new(),
            filter: (schedule.filter.into_iter())
                .filter(|step| match step {
                    Step::Compute(register) => is_left(register),
                    Step::Check(_) | Step::Require(_) => true,
                })
                .collect(),
            output: schedule.output.into_iter().filter(is_left).collect(),
        };
        let registers: Vec<_> = found.into_iter().collect();
        Ok(Some(Self {
            expressions,
            parsing: Program::new(plan, &parsing).output,
            program: Arc::new(Program::new(plan, &rest)),
            conditions: Conditions::new(plan, &rest, &registers),
            registers,
        }))
    }
}

/// The registers that the steps of a schedule use for checks, filters and output.
fn roots(plan: &ScanPlan, schedule: &Schedule) -> Vec<Register> {
    let of_filter = schedule.filter.iter().filter_map(|step| match step {
        Step::Check(check) => Some(plan.checks[*check].holds),
        Step::Require(register) => Some(*register),
        Step::Compute(_) => None,
    });
    of_filter.chain(plan.output.registers()).collect()
}

/// The registers below and including some, but not below those of `ends`.
fn reach(
    plan: &ScanPlan,
    from: impl IntoIterator<Item = Register>,
    ends: &BTreeSet<Register>,
) -> BTreeSet<Register> {
    let mut reached = BTreeSet::new();
    let mut rest: Vec<_> = from.into_iter().collect();
    while let Some(register) = rest.pop() {
        if reached.insert(register) && !ends.contains(&register) {
            let instruction = &plan.instructions[usize::from(register)];
            rest.extend(instruction.operands().into_iter().flatten());
        }
    }
    reached
}

/// The registers of the columns: conditions of checks, and below filters and output the first values that are cut out of
/// bytes. Those above are what statements compute.
fn find(plan: &ScanPlan, schedule: &Schedule) -> BTreeSet<Register> {
    let mut is_of_row = Vec::with_capacity(plan.instructions.len());
    for instruction in &plan.instructions {
        let of_row = |register: Register| is_of_row[usize::from(register)];
        let is = match instruction {
            Instruction::Key | Instruction::Value => true,
            _ => instruction.operands().into_iter().flatten().any(of_row),
        };
        is_of_row.push(is);
    }
    let checked: BTreeSet<_> = plan.checks.iter().map(|check| check.holds).collect();
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut rest = roots(plan, schedule);
    while let Some(register) = rest.pop() {
        let instruction = &plan.instructions[usize::from(register)];
        if !is_of_row[usize::from(register)] || !seen.insert(register) {
            continue;
        }
        let is_of_statement = matches!(
            instruction,
            Instruction::Compare { .. }
                | Instruction::And(..)
                | Instruction::Or(..)
                | Instruction::Not(_)
                | Instruction::IsNull(_)
                | Instruction::Like { .. }
                | Instruction::OneOf { .. }
                | Instruction::Arithmetic { .. }
                | Instruction::Select { .. }
        );
        if is_of_statement && !checked.contains(&register) {
            rest.extend(instruction.operands().into_iter().flatten());
        } else {
            found.insert(register);
        }
    }
    found
}

/// Whether a result of arithmetic may exceed 128 bits.
fn may_fail(plan: &ScanPlan, registers: &BTreeSet<Register>) -> bool {
    const MOST: u32 = i128::BITS;
    let mut bits: BTreeMap<Register, u32> = BTreeMap::new();
    for &register in registers {
        let of = |register: &Register| bits.get(register).copied().unwrap_or(MOST);
        let all = match &plan.instructions[usize::from(register)] {
            Instruction::Constant(Literal::Integer(integer)) => {
                i128::BITS - integer.unsigned_abs().leading_zeros() + 1
            }
            Instruction::Length(_)
            | Instruction::AfterPrefixed { .. }
            | Instruction::StringSize { .. }
            | Instruction::Date { .. } => u64::BITS + 1,
            Instruction::Load { number, .. } => u8::BITS * u32::from(number.bytes) + 1,
            Instruction::Json {
                takes: Json::Member(_, JsonType::Integer { bytes, .. }),
                ..
            } => u8::BITS * u32::from(*bytes) + 1,
            Instruction::Select {
                then, otherwise, ..
            } => of(then).max(of(otherwise)),
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range,
            } => {
                let exact = match operation {
                    Operation::Add | Operation::Subtract => of(left).max(of(right)) + 1,
                    Operation::Multiply => of(left) + of(right),
                };
                match range {
                    IntegerRange::WrapSigned { bytes } => u8::BITS * u32::from(*bytes),
                    IntegerRange::WrapUnsigned { bytes } => u8::BITS * u32::from(*bytes) + 1,
                    IntegerRange::Exact if exact > MOST => return true,
                    IntegerRange::Exact => exact,
                }
            }
            _ => MOST,
        };
        bits.insert(register, all.min(MOST));
    }
    false
}

/// The instructions below a register, with registers that count from 0.
fn expression(plan: &ScanPlan, register: Register) -> Expression {
    let registers = reach(plan, [register], &BTreeSet::new());
    let places: BTreeMap<_, _> = registers.iter().copied().zip(0..).collect();
    let renamed = |register: &Register| {
        let instruction = &plan.instructions[usize::from(*register)];
        instruction.with_operands(|operand| places[&operand])
    };
    registers.iter().map(renamed).collect()
}
