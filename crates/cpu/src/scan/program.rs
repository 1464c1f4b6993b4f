//! The schedule of a plan, in which each JSON object is parsed once.

use rockmill_core::scan::{Instruction, Register, ScanPlan, Schedule, Step};

use super::json::ExtractedValues;

/// The steps for a batch of rows.
#[derive(Debug)]
pub struct Program {
    /// They select rows.
    pub filter: Vec<Op>,
    /// For the selected rows.
    pub output: Vec<Op>,
}

/// A step.
#[derive(Debug)]
pub enum Op {
    /// Extracts all values that a plan needs from one JSON object.
    Json(ExtractedValues),
    /// Computes anything else.
    Compute(Register),
    /// Requires that a check of the plan holds, or counts the rows in which it does not.
    Check(usize),
    /// Requires that a value is true.
    Require(Register),
}

impl Program {
    pub fn new(plan: &ScanPlan, schedule: &Schedule) -> Self {
        let mut parsed = Vec::new();
        let mut filter = Vec::new();
        for step in &schedule.filter {
            match step {
                Step::Compute(register) => filter.extend(compute(plan, *register, &mut parsed)),
                Step::Check(check) => filter.push(Op::Check(*check)),
                Step::Require(register) => filter.push(Op::Require(*register)),
            }
        }
        let output = schedule.output.iter();
        let output = output.filter_map(|register| compute(plan, *register, &mut parsed));
        Self {
            output: output.collect(),
            filter,
        }
    }
}

/// The step that computes a value; `None` if an earlier one does. `parsed` are registers whose JSON has been parsed.
fn compute(plan: &ScanPlan, register: Register, parsed: &mut Vec<Register>) -> Option<Op> {
    let Instruction::Json { from, .. } = &plan.instructions[usize::from(register)] else {
        return Some(Op::Compute(register));
    };
    if parsed.contains(from) {
        return None;
    }
    parsed.push(*from);
    Some(Op::Json(ExtractedValues::new(plan, *from)))
}
