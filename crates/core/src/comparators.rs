//! Comparators of applications. OPTIONS name a comparator, and the name alone does not tell its order: a user states it, or
//! the comparator itself is asked about the keys of a job ([`crate::CheckedOrder`]).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use rockmill_format::key::KeyOrder;
use serde::{Deserialize, Serialize};

use crate::error;

/// A comparator of the application. Several threads call it at once.
pub trait Compare: Debug + Send + Sync {
    /// Compares two user keys (`Comparator::Compare`).
    ///
    /// # Errors
    /// Declined if it fails.
    fn compare(&self, a: &[u8], b: &[u8]) -> error::Result<Ordering>;
}

/// A comparator of the application; equal if it is the same object.
#[derive(Debug, Clone)]
pub struct CustomComparator(pub Arc<dyn Compare>);

impl PartialEq for CustomComparator {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomComparator {}

/// Names of comparators that order all keys as one of RocksDB's does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparators {
    bytewise: BTreeSet<String>,
    reverse: BTreeSet<String>,
}

/// The end of the names of RocksDB's comparators of keys with timestamps.
pub const TIMESTAMP_SUFFIX: &str = ".u64ts";

impl Comparators {
    /// Adds a statement, `NAME=bytewise` or `NAME=reverse`.
    ///
    /// # Errors
    /// One sentence if it is not one, or contradicts another one.
    pub fn state(&mut self, stated: &str) -> Result<(), String> {
        let unknown = || {
            format!(
                "the comparator {stated:?} has no order: write NAME=bytewise, or NAME=reverse for the opposite order"
            )
        };
        let (name, order) = stated.rsplit_once('=').ok_or_else(unknown)?;
        let order = match order {
            "bytewise" => KeyOrder::Bytewise,
            "reverse" => KeyOrder::ReverseBytewise,
            _ => return Err(unknown()),
        };
        if name.is_empty() {
            return Err(unknown());
        }
        if KeyOrder::from_comparator(name.as_bytes()).is_some() || name.ends_with(TIMESTAMP_SUFFIX)
        {
            return Err(format!(
                "RocksDB has the comparator {name}, so its order is not stated"
            ));
        }
        if self.order(name).is_some_and(|other| other != order) {
            return Err(format!("two orders are stated for the comparator {name}"));
        }
        let names = match order {
            KeyOrder::Bytewise => &mut self.bytewise,
            KeyOrder::ReverseBytewise => &mut self.reverse,
        };
        names.insert(name.to_owned());
        Ok(())
    }

    /// The order of the comparator with this name, if it is stated.
    pub fn order(&self, name: &str) -> Option<KeyOrder> {
        if self.bytewise.contains(name) {
            Some(KeyOrder::Bytewise)
        } else if self.reverse.contains(name) {
            Some(KeyOrder::ReverseBytewise)
        } else {
            None
        }
    }

    /// Whether none is stated.
    pub fn is_empty(&self) -> bool {
        self.bytewise.is_empty() && self.reverse.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparator_has_the_order_that_is_stated_for_it() {
        let mut all = Comparators::default();
        assert!(all.is_empty());
        assert_eq!(all.state("one=bytewise"), Ok(()));
        assert_eq!(all.state("rev:a=b=reverse"), Ok(()));
        assert_eq!(all.state("one=bytewise"), Ok(()));
        assert_eq!(all.order("one"), Some(KeyOrder::Bytewise));
        assert_eq!(all.order("rev:a=b"), Some(KeyOrder::ReverseBytewise));
        assert_eq!(all.order("other"), None);
        let text = serde_json::to_string(&all).expect("JSON");
        assert_eq!(serde_json::from_str::<Comparators>(&text).ok(), Some(all));
    }

    #[test]
    fn statements_without_an_order_or_against_another_one_are_refused() {
        let mut all = Comparators::default();
        for wrong in ["mine", "mine=", "mine=numeric", "=bytewise", ""] {
            let why = all.state(wrong).expect_err(wrong);
            assert!(why.contains("NAME=reverse"), "{why}");
        }
        let why = all.state("leveldb.BytewiseComparator=reverse");
        assert!(why.is_err_and(|why| why.contains("RocksDB has")));
        assert!(
            all.state("rocksdb.ReverseBytewiseComparator.u64ts=reverse")
                .is_err()
        );
        assert_eq!(all.state("mine=reverse"), Ok(()));
        let why = all.state("mine=bytewise");
        assert!(why.is_err_and(|why| why.contains("two orders")));
        assert_eq!(all.order("mine"), Some(KeyOrder::ReverseBytewise));
    }
}
