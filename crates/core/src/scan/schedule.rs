//! The order in which a row's values are computed.

use super::{Aggregate, ColumnType, Instruction, Register, ScanOutput, ScanPlan, ValueKind};
use crate::error::Result;

/// Order in which a row's values are computed. Every backend follows it, so that all of them find the same numbers out
/// of range. Unused values and constants are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The kind of each instruction's result.
    pub kinds: Vec<ValueKind>,
    /// For each row, until a step rejects it.
    pub filter: Vec<Step>,
    /// For each selected row, the values that the filter has not computed.
    pub output: Vec<Register>,
}

/// A step of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Computes a value, whose operands are constants or were computed earlier.
    Compute(Register),
    /// The row is malformed if this check's value is false or null. That is an error, or it is counted.
    Check(usize),
    /// If this value is false or null, the row is rejected and nothing more is computed.
    Require(Register),
}

impl ScanPlan {
    /// The order for the plan. A filter is divided into the values that it joins by [`Instruction::And`]: they are
    /// required one after another, from left to right.
    ///
    /// # Errors
    /// The errors of [`ScanPlan::kinds`].
    pub fn schedule(&self) -> Result<Schedule> {
        let mut schedule = Schedule {
            kinds: self.kinds()?,
            ..Schedule::default()
        };
        let mut order = Order {
            plan: self,
            is_done: vec![false; self.instructions.len()],
        };
        for (position, check) in self.checks.iter().enumerate() {
            let steps = order.compute(check.holds).into_iter().map(Step::Compute);
            schedule.filter.extend(steps);
            schedule.filter.push(Step::Check(position));
        }
        for required in self.required() {
            let steps = order.compute(required).into_iter().map(Step::Compute);
            schedule.filter.extend(steps);
            schedule.filter.push(Step::Require(required));
        }
        for register in self.output.registers() {
            schedule.output.extend(order.compute(register));
        }
        Ok(schedule)
    }

    /// The values that the filter joins by And, from left to right, each once.
    fn required(&self) -> Vec<Register> {
        let mut is_seen = vec![false; self.instructions.len()];
        let mut required = Vec::new();
        let mut rest: Vec<_> = self.filter.into_iter().collect();
        while let Some(register) = rest.pop() {
            let at = usize::from(register);
            if std::mem::replace(&mut is_seen[at], true) {
                continue;
            }
            match self.instructions[at] {
                Instruction::And(left, right) => rest.extend([right, left]),
                _ => required.push(register),
            }
        }
        required
    }
}

impl ScanOutput {
    /// The columns of its batches.
    pub fn columns(&self) -> Vec<ColumnType> {
        const COUNT: ColumnType = ColumnType::Integer {
            bytes: size_of::<i64>() as u8,
        };
        match self {
            Self::Rows(columns) => columns.iter().map(|column| column.stored).collect(),
            Self::Groups(groups) => {
                let of_aggregate = |aggregate: &Aggregate| match *aggregate {
                    Aggregate::Count(_) => COUNT,
                    Aggregate::Sum { stored, .. } => stored,
                    Aggregate::Min(column) | Aggregate::Max(column) => column.stored,
                };
                let keys = groups.keys.iter().map(|key| key.stored);
                keys.chain(groups.aggregates.iter().map(of_aggregate))
                    .collect()
            }
        }
    }

    /// The values of a selected row in the output. Some may occur several times.
    pub fn registers(&self) -> Vec<Register> {
        match self {
            Self::Rows(columns) => columns.iter().map(|column| column.register).collect(),
            Self::Groups(groups) => {
                let of_aggregate = |aggregate: &Aggregate| match *aggregate {
                    Aggregate::Count(of) => of,
                    Aggregate::Sum { of, .. } => Some(of),
                    Aggregate::Min(column) | Aggregate::Max(column) => Some(column.register),
                };
                let keys = groups.keys.iter().map(|column| column.register);
                keys.chain(groups.aggregates.iter().filter_map(of_aggregate))
                    .collect()
            }
        }
    }
}

struct Order<'a> {
    plan: &'a ScanPlan,
    is_done: Vec<bool>,
}

impl Order<'_> {
    /// The values to compute now for a value, itself included.
    fn compute(&mut self, register: Register) -> Vec<Register> {
        let mut needed = Vec::new();
        let mut rest = vec![register];
        while let Some(register) = rest.pop() {
            let at = usize::from(register);
            if std::mem::replace(&mut self.is_done[at], true) {
                continue;
            }
            let instruction = &self.plan.instructions[at];
            if !matches!(instruction, Instruction::Constant(_)) {
                needed.push(register);
            }
            rest.extend(instruction.operands().into_iter().flatten());
        }
        // Operands have smaller numbers.
        needed.sort_unstable();
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Comparison, Literal, OutputColumn};

    fn compare(left: Register, right: Register) -> Instruction {
        Instruction::Compare {
            comparison: Comparison::Less,
            left,
            right,
        }
    }

    #[test]
    fn a_value_is_computed_once_when_it_is_first_needed() {
        let plan = ScanPlan {
            instructions: vec![
                Instruction::Value,
                Instruction::Length(0),
                Instruction::Constant(Literal::Integer(9)),
                compare(1, 2),
                Instruction::Key,
                Instruction::Length(4),
                compare(5, 2),
                compare(1, 5),
                // Not needed.
                Instruction::Not(3),
                Instruction::And(6, 3),
                Instruction::And(9, 7),
                Instruction::And(10, 6),
                Instruction::IsNull(0),
            ],
            checks: Vec::new(),
            filter: Some(11),
            output: ScanOutput::Rows(vec![
                OutputColumn {
                    register: 12,
                    stored: ColumnType::Boolean,
                },
                OutputColumn {
                    register: 3,
                    stored: ColumnType::Boolean,
                },
            ]),
        };
        let schedule = plan.schedule().expect("it is sound");
        let filter = [
            Step::Compute(4),
            Step::Compute(5),
            Step::Compute(6),
            Step::Require(6),
            Step::Compute(0),
            Step::Compute(1),
            Step::Compute(3),
            Step::Require(3),
            Step::Compute(7),
            Step::Require(7),
        ];
        assert_eq!(schedule.filter, filter);
        assert_eq!(schedule.output, [12]);
    }

    #[test]
    fn values_that_are_joined_again_and_again_are_required_once() {
        let mut instructions = vec![Instruction::Constant(Literal::Boolean(true))];
        for last in 0..super::super::MAX_INSTRUCTIONS as Register - 1 {
            instructions.push(Instruction::And(last, last));
        }
        let plan = ScanPlan {
            filter: Some(instructions.len() as Register - 1),
            instructions,
            ..ScanPlan::default()
        };
        let schedule = plan.schedule().expect("it is sound");
        assert_eq!(schedule.filter, [Step::Require(0)]);
    }
}
