//! Arguments of commands that may merge operands.

use std::path::Path;

use rockmill_scan::{MergeOperators, StatedOperator};
use rockmill_terminal::outcome::Failure;

use crate::database_dir;

/// Merge operators.
#[derive(Debug, Clone, clap::Args)]
pub struct MergeArgs {
    /// Merge operands of a column family, or of all, with this operator of RocksDB. OPTIONS name an operator, but
    /// applications may use the same name for their own. So rows with operands need this argument. Operators are
    /// uint64add, stringappend, stringappendtest, max, put, bytesxor and sortlist, or RocksDB's class names. Options
    /// are written as in RocksDB, as in stringappend:delimiter=|. The argument can be repeated.
    #[arg(long = "merge-operator", value_name = "[FAMILY=]NAME[:OPTIONS]")]
    stated: Vec<StatedOperator>,
}

impl MergeArgs {
    /// The argument with these values.
    ///
    /// # Errors
    /// Usage if one of them states no operator.
    pub fn of(stated: &[String]) -> Result<Self, Failure> {
        let stated = stated.iter().map(|text| text.parse());
        let stated = stated.collect::<Result<_, String>>();
        Ok(Self {
            stated: stated.map_err(|what| Failure::Usage(format!("--merge-operator: {what}")))?,
        })
    }

    /// The operators as the user wrote them.
    pub fn stated(&self) -> impl Iterator<Item = String> {
        self.stated.iter().map(ToString::to_string)
    }

    /// The operators, with these column families.
    ///
    /// # Errors
    /// Usage if two are for the same column family, or one is for a column family that does not exist.
    pub fn operators(&self, db: &Path, families: &[String]) -> Result<MergeOperators, Failure> {
        let operators = MergeOperators::of(&self.stated);
        let checked = operators.and_then(|all| all.check(families).map(|()| all));
        checked.map_err(|e| database_dir::failure(db, e))
    }
}
