//! The order of keys of a column family.

use std::collections::BTreeSet;

use rockmill_core::{
    CustomComparator, DeclineReason, Error, Fragments, InputTable, KeyAgreement, Result, TreeView,
};
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::{ColumnFamilyOptions, Options};
use rockmill_snapshot::tree::user_key;

use super::{EligibleJob, require_object};

/// The order of a column family's keys, and where it comes from.
#[derive(Debug)]
pub struct Keys {
    /// The order.
    pub order: KeyOrder,
    /// The program's comparator with its name, which has to agree.
    pub comparator: Option<(String, CustomComparator)>,
}

impl Keys {
    /// The keys of a job's column family.
    ///
    /// # Errors
    /// Declined if their order is not known.
    pub fn of(eligible: &EligibleJob, family: &ColumnFamilyOptions) -> Result<Self> {
        let job = &eligible.job;
        let attached = job.info.plugins.as_ref();
        let attached = attached.and_then(|plugins| plugins.comparator.as_ref());
        let named = family.options.str(KEY);
        match attached {
            Some((name, comparator)) if named == Some(name) => Ok(Self {
                order: stored_order(&job.tree, comparator)?,
                comparator: Some((name.clone(), comparator.clone())),
            }),
            Some((name, _)) => {
                let named = named.unwrap_or("none");
                let what = format!("{KEY} is {named} in OPTIONS, and {name} was attached");
                Err(Error::declined(DeclineReason::PluginMismatch, what))
            }
            None => Ok(Self {
                order: own_order(&family.options, eligible.file.rocksdb_version)?,
                comparator: None,
            }),
        }
    }

    /// Compares the keys in the MANIFEST, if the program has a comparator.
    ///
    /// # Errors
    /// Declined if it orders them differently, or fails.
    pub fn check_tree(&self, tree: &TreeView) -> Result<()> {
        match &self.comparator {
            None => Ok(()),
            Some((_, comparator)) => {
                let agreement =
                    KeyAgreement::new(comparator.clone(), self.order, bounds_of_tree(tree));
                agreement.map(drop)
            }
        }
    }

    /// Compares all user keys of a job other than those of entries, if the program has a comparator.
    ///
    /// # Errors
    /// The errors of [`Keys::check_tree`].
    pub fn agreement(
        &self,
        eligible: &EligibleJob,
        tables: &[InputTable],
        tombstones: &Fragments,
    ) -> Result<Option<KeyAgreement>> {
        let Some((_, comparator)) = &self.comparator else {
            return Ok(None);
        };
        let input = &eligible.input;
        let mut bounds = bounds_of_tree(&eligible.job.tree);
        bounds.extend([&input.begin, &input.end].into_iter().flatten().cloned());
        let fragments = tombstones.all().iter();
        bounds.extend(fragments.flat_map(|one| [one.begin.clone(), one.end.clone()]));
        let separators = tables.iter().flat_map(|table| &table.meta.index);
        bounds.extend(separators.map(|block| block.separator.to_vec()));
        KeyAgreement::new(comparator.clone(), self.order, bounds).map(Some)
    }
}

const KEY: &str = "comparator";

/// The order of RocksDB's comparator in the options.
fn own_order(cf: &Options, written_by: [u32; 3]) -> Result<KeyOrder> {
    const BYTEWISE: &str = "leveldb.BytewiseComparator";
    const TIMESTAMP_SUFFIX: &str = ".u64ts";
    let named = cf.str(KEY);
    if let Some(order) = named.and_then(|name| KeyOrder::from_comparator(name.as_bytes())) {
        return Ok(order);
    }
    let reason = match named.is_some_and(|name| name.ends_with(TIMESTAMP_SUFFIX)) {
        true => DeclineReason::UserTimestamps,
        false => DeclineReason::Comparator,
    };
    require_object(cf, KEY, &[BYTEWISE], written_by, reason).map(|()| KeyOrder::Bytewise)
}

/// The one of RocksDB's orders in which keys of the inputs stand.
fn stored_order(tree: &TreeView, comparator: &CustomComparator) -> Result<KeyOrder> {
    let inputs = tree.inputs.iter();
    let mut ends = inputs.map(|file| (user_key(&file.smallest), user_key(&file.largest)));
    if let Some((smallest, largest)) = ends.find(|(smallest, largest)| smallest != largest) {
        return Ok(match smallest < largest {
            true => KeyOrder::Bytewise,
            false => KeyOrder::ReverseBytewise,
        });
    }
    // Each file has a single key.
    let keys: BTreeSet<_> = bounds_of_tree(tree).into_iter().collect();
    let mut keys = keys.iter();
    match (keys.next(), keys.next()) {
        (Some(first), Some(second)) if comparator.0.compare(first, second)?.is_gt() => {
            Ok(KeyOrder::ReverseBytewise)
        }
        _ => Ok(KeyOrder::Bytewise),
    }
}

fn bounds_of_tree(tree: &TreeView) -> Vec<Vec<u8>> {
    let inputs = tree.inputs.iter();
    let inputs = inputs.flat_map(|file| [&file.smallest, &file.largest].map(|key| user_key(key)));
    let deeper = tree.deeper.iter().flat_map(|(_, files)| files);
    let deeper = deeper.flat_map(|file| [file.smallest.as_slice(), file.largest.as_slice()]);
    inputs.chain(deeper).map(<[u8]>::to_vec).collect()
}
