//! Groups in which a filter selects no row, as the smallest and the largest values of their columns show.
//!
//! Their rows are read like others: keys and tags decide what a snapshot sees. Only the program does not run over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rockmill_core::columns::Column;
use rockmill_core::scan::{Comparison, Instruction, Literal, Register, ScanPlan, Schedule, Step};

use super::vector::TRUE;

/// The conditions of a filter that columns may show to hold in no row.
#[derive(Debug)]
pub struct Conditions {
    /// Each holds in every selected row. The values that are computed before them cannot be out of range.
    required: Vec<Register>,
    /// They, and the values that they are computed from, operands first.
    computed: Vec<Register>,
    /// Positions of the columns among them.
    columns: BTreeMap<Register, usize>,
    /// Positions of the columns of the plan's checks.
    checks: Vec<usize>,
    /// Positions of the columns in `columns` and `checks`, in ascending order.
    pub positions: Vec<usize>,
}

impl Conditions {
    /// The conditions of a plan. `rest` computes its values from columns at some registers, in ascending order.
    pub fn new(plan: &ScanPlan, rest: &Schedule, registers: &[Register]) -> Self {
        let mut conditions = Self {
            required: Vec::new(),
            computed: Vec::new(),
            columns: BTreeMap::new(),
            checks: Vec::new(),
            positions: Vec::new(),
        };
        for step in &rest.filter {
            let operands = match step {
                Step::Compute(register) => {
                    let instruction = &plan.instructions[usize::from(*register)];
                    if matches!(instruction, Instruction::Arithmetic { .. }) {
                        break;
                    }
                    conditions.computed.push(*register);
                    instruction.operands()
                }
                Step::Require(register) => {
                    conditions.required.push(*register);
                    continue;
                }
                Step::Check(check) => match registers.binary_search(&plan.checks[*check].holds) {
                    Ok(position) => {
                        conditions.checks.push(position);
                        continue;
                    }
                    Err(_) => break,
                },
            };
            for operand in operands.into_iter().flatten() {
                if let Ok(position) = registers.binary_search(&operand) {
                    conditions.columns.insert(operand, position);
                }
            }
        }
        let positions = conditions.columns.values().chain(&conditions.checks);
        let positions: BTreeSet<_> = positions.copied().collect();
        conditions.positions = positions.into_iter().collect();
        conditions
    }

    /// Whether no row of a group is selected, or malformed. Columns that are not there are not looked at.
    pub fn select_nothing(&self, plan: &ScanPlan, columns: &[Option<Arc<Column>>]) -> bool {
        let bounds = |register: &Register| match plan.instructions[usize::from(*register)] {
            Instruction::Constant(Literal::Integer(integer)) => Some([integer; 2]),
            _ => {
                let column = columns[*self.columns.get(register)?].as_ref()?;
                Some(column.bounds()?.map(i128::from))
            }
        };
        let mut impossible = BTreeSet::new();
        for register in &self.computed {
            let is = |condition| impossible.contains(condition);
            let is_impossible = match &plan.instructions[usize::from(*register)] {
                Instruction::And(left, right) => is(left) || is(right),
                Instruction::Or(left, right) => is(left) && is(right),
                Instruction::Compare {
                    comparison,
                    left,
                    right,
                } => match (bounds(left), bounds(right)) {
                    (Some(left), Some(right)) => holds_nowhere(*comparison, left, right),
                    _ => false,
                },
                Instruction::OneOf { of, values } => bounds(of).is_some_and(|[least, most]| {
                    let mut values = values.iter();
                    !values.any(|value| match value {
                        Literal::Integer(value) => (least..=most).contains(value),
                        _ => true,
                    })
                }),
                _ => false,
            };
            if is_impossible {
                impossible.insert(*register);
            }
        }
        let holds = |check: &usize| {
            let column = columns[*check].as_ref();
            column.is_some_and(|column| {
                let holds = column.booleans(0..column.rows());
                holds.len() == column.rows() && holds.iter().all(|holds| *holds == TRUE)
            })
        };
        let mut required = self.required.iter();
        required.any(|register| impossible.contains(register)) && self.checks.iter().all(holds)
    }
}

/// Whether a comparison holds for no two integers between the least and the most.
fn holds_nowhere(comparison: Comparison, left: [i128; 2], right: [i128; 2]) -> bool {
    let ([a, most_a], [b, most_b]) = (left, right);
    match comparison {
        Comparison::Equal => most_a < b || most_b < a,
        Comparison::NotEqual => left == right && a == most_a,
        Comparison::Less => a >= most_b,
        Comparison::LessOrEqual => a > most_b,
        Comparison::Greater => most_a <= b,
        Comparison::GreaterOrEqual => most_a < b,
    }
}
