//! The queries.

use rockmill_side_by_side::dataset::{Dataset, tpch_statements};

/// A query over one of the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// TPC-H's parts of a size below 15.
    FilterInt,
    /// TPC-H's parts of one type.
    FilterString,
    /// Rows of an integer and five texts, a tenth of which the query selects.
    Ycsb,
    /// A query of TPC-H, by its number.
    Tpch(i32),
}

const TPCH_QUERIES: i32 = 22;

impl Experiment {
    /// Those that read at most three tables.
    pub const USUAL: [Self; 8] = [
        Self::FilterInt,
        Self::FilterString,
        Self::Ycsb,
        Self::Tpch(1),
        Self::Tpch(4),
        Self::Tpch(6),
        Self::Tpch(14),
        Self::Tpch(15),
    ];

    /// The query with a name, or all of TPC-H with the name `tpch`.
    ///
    /// # Errors
    /// The names, if there is no such query.
    pub fn named(name: &str) -> Result<Vec<Self>, String> {
        let tpch = (1..=TPCH_QUERIES).map(Self::Tpch);
        if name == "tpch" {
            return Ok(tpch.collect());
        }
        let mut all = Self::USUAL[..3].iter().copied().chain(tpch);
        let found = all.find(|query| query.name() == name);
        found.map(|query| vec![query]).ok_or_else(|| {
            format!("queries are filter-int, filter-string, ycsb, q1 to q{TPCH_QUERIES}, and tpch for all of these")
        })
    }

    /// Contents of the database.
    pub fn dataset(self) -> Dataset {
        match self {
            Self::Ycsb => Dataset::Ycsb,
            _ => Dataset::Tpch,
        }
    }

    /// Name in results.
    pub fn name(self) -> String {
        match self {
            Self::FilterInt => "filter-int".to_owned(),
            Self::FilterString => "filter-string".to_owned(),
            Self::Ycsb => "ycsb".to_owned(),
            Self::Tpch(number) => format!("q{number}"),
        }
    }

    /// The tables that it reads, as column families of the same names.
    pub fn tables(self) -> Vec<&'static str> {
        let statements = self.statements(1.0).join(";");
        let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let words: Vec<_> = statements.split(is_separator).collect();
        let mut tables = self.dataset().names();
        tables.retain(|table| words.contains(table));
        tables
    }

    /// Its statements for a scale of the data, one of which returns rows.
    pub fn statements(self, scale: f64) -> Vec<String> {
        let statement = match self {
            Self::FilterInt => {
                "select count(*), min(p_partkey), max(p_name) from part where p_size < 15"
            }
            Self::FilterString => {
                "select count(*), min(p_partkey), max(p_name) from part where p_type = 'SMALL PLATED BRASS'"
            }
            Self::Ycsb => {
                "select count(*), max(field0), min(field4) from usertable where number < 100"
            }
            Self::Tpch(number) => return tpch_statements(number, scale),
        };
        vec![statement.to_owned()]
    }
}
