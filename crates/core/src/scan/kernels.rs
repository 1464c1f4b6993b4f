//! The parts of plans that kernels leave to the CPU.

use super::instructions::Kind;
use super::{Instruction, Kernel, ScanPlan, ValueKind};

impl ScanPlan {
    /// The reason why kernels do not run the plan, as a clause.
    pub fn left_to_cpu(&self) -> Option<&'static str> {
        let in_groups = lies_in_groups(&self.instructions);
        let reason = |instruction: &Instruction| {
            let declared = instruction.declared();
            if let Kernel::LeftToCpu(reason) = declared.kernel {
                return Some(reason);
            }
            let reads_groups = declared.operands.iter().flatten().any(|(of, kind)| {
                matches!(kind, Kind::Contiguous) && in_groups.get(usize::from(*of)) == Some(&true)
            });
            reads_groups.then_some("the CPU reads numbers and strings within strings in groups")
        };
        self.instructions.iter().find_map(reason)
    }
}

/// For each instruction, whether its result may be a part of an [`Instruction::String`], whose bytes are not contiguous
/// in the row. In kernels, all other instructions that return bytes return those of an operand.
pub fn lies_in_groups(instructions: &[Instruction]) -> Vec<bool> {
    let mut in_groups = Vec::with_capacity(instructions.len());
    for instruction in instructions {
        let declared = instruction.declared();
        let mut operands = declared.operands.iter().flatten();
        let lies = match (instruction, declared.returns) {
            (Instruction::String { .. }, _) => true,
            (_, Kind::Is(ValueKind::Boolean | ValueKind::Integer)) => false,
            _ => operands.any(|(of, _)| in_groups.get(usize::from(*of)) == Some(&true)),
        };
        in_groups.push(lies);
    }
    in_groups
}

#[cfg(test)]
mod tests {
    use super::super::{Json, Literal, StringGroups};
    use super::*;

    #[test]
    fn numbers_within_strings_in_groups_are_left_to_the_cpu() {
        let (at, groups) = (1, StringGroups::Counted);
        let string = |from| Instruction::String {
            from,
            at,
            groups,
            spaces: None,
        };
        let plan = |last| ScanPlan {
            instructions: vec![
                Instruction::Key,
                Instruction::Constant(Literal::Integer(0)),
                string(0),
                Instruction::TrimEnd(2),
                Instruction::Length(3),
                last,
            ],
            ..ScanPlan::default()
        };
        for last in [string(0), Instruction::Text(3), Instruction::Value] {
            assert_eq!(plan(last).left_to_cpu(), None);
        }
        let size = |from| Instruction::StringSize { from, at, groups };
        for last in [string(3), size(2), Instruction::Bit { from: 3, at }] {
            let why = plan(last.clone()).left_to_cpu();
            assert!(why.is_some_and(|why| why.contains("in groups")), "{last:?}");
        }
        let takes = Json::IsObject;
        let json = plan(Instruction::Json { from: 0, takes });
        assert_eq!(json.left_to_cpu(), Some("the CPU parses JSON"));
        let latin1 = plan(Instruction::Latin1(0));
        assert_eq!(latin1.left_to_cpu(), Some("the CPU decodes latin1"));
    }
}
