//! The schedule of a plan, in which what most filters consist of is one step.

use rockmill_core::scan::{
    Comparison, Instruction, Literal, Number, Register, ScanPlan, Schedule, Step,
};

use super::json::Taken;

/// What is done for each row.
pub struct Program {
    /// Until a step finds that the row is not wanted.
    pub filter: Vec<Op>,
    /// What the checks that count require. It is computed before a step finds that the row is not wanted.
    pub counted: Vec<Register>,
    /// For each wanted row.
    pub output: Vec<Op>,
}

/// A step.
pub enum Op {
    /// Loads a number from where it lies in every row.
    Load {
        from_key: bool,
        at: usize,
        number: Number,
        to: Register,
    },
    /// Compares an integer with a constant, and requires that it holds.
    RequireOrder {
        left: Register,
        comparison: Comparison,
        right: i128,
        to: Register,
    },
    /// Takes all that a plan takes from one JSON object.
    Json(Taken),
    /// Computes anything else.
    Compute(Register),
    /// Requires that a check of the plan holds, which does not count.
    Check(usize),
    /// Requires that a value is true.
    Require(Register),
}

impl Program {
    pub fn new(plan: &ScanPlan, schedule: &Schedule) -> Self {
        let mut filter: Vec<Op> = Vec::new();
        let mut parsed = Vec::new();
        let counted = plan.checks.iter().filter(|check| check.counts);
        let counted: Vec<_> = counted.map(|check| check.holds).collect();
        for step in &schedule.filter {
            match (step, filter.last()) {
                (Step::Compute(register), _) => {
                    filter.extend(compute(plan, *register, &mut parsed));
                }
                (Step::Check(check), _) if plan.checks[*check].counts => {}
                (Step::Check(check), _) => filter.push(Op::Check(*check)),
                // A counted check must be computed in any case.
                (Step::Require(register), Some(Op::Compute(last)))
                    if last == register && !counted.contains(register) =>
                {
                    if let Some(required) = require_order(plan, *register) {
                        filter.pop();
                        filter.push(required);
                    } else {
                        filter.push(Op::Require(*register));
                    }
                }
                (Step::Require(register), _) => filter.push(Op::Require(*register)),
            }
        }
        let output = schedule.output.iter();
        Self {
            filter,
            counted,
            output: output
                .filter_map(|register| compute(plan, *register, &mut parsed))
                .collect(),
        }
    }
}

/// The step that computes a value; `None` if an earlier one does. `parsed` are registers whose JSON has been parsed.
fn compute(plan: &ScanPlan, register: Register, parsed: &mut Vec<Register>) -> Option<Op> {
    let instruction = |register: Register| &plan.instructions[usize::from(register)];
    if let Instruction::Json { from, .. } = instruction(register) {
        if parsed.contains(from) {
            return None;
        }
        parsed.push(*from);
        return Some(Op::Json(Taken::new(plan, *from)));
    }
    if let Instruction::Load { from, at, number } = instruction(register)
        && let source @ (Instruction::Key | Instruction::Value) = instruction(*from)
        && let Some(at) = integer(plan, *at).and_then(|at| usize::try_from(at).ok())
    {
        return Some(Op::Load {
            from_key: *source == Instruction::Key,
            at,
            number: *number,
            to: register,
        });
    }
    Some(Op::Compute(register))
}

fn require_order(plan: &ScanPlan, register: Register) -> Option<Op> {
    match plan.instructions[usize::from(register)] {
        Instruction::Compare {
            comparison,
            left,
            right,
        } => Some(Op::RequireOrder {
            left,
            comparison,
            right: integer(plan, right)?,
            to: register,
        }),
        _ => None,
    }
}

/// The constant at a register.
fn integer(plan: &ScanPlan, register: Register) -> Option<i128> {
    match plan.instructions[usize::from(register)] {
        Instruction::Constant(Literal::Integer(integer)) => Some(integer),
        _ => None,
    }
}
