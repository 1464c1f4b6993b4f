//! Tables in memory, for tests.

use rockmill_core::{FilterPlan, Result, open_known_table};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::prefix::PrefixExtractor;

use rockmill_testkit::cases::tables::{self, DELETE, Entry, MemFile, PUT};

use crate::sst::Sst;

pub use rockmill_testkit::cases::FILE_NAME;

/// Opens a table as the commands do.
pub fn open(bytes: Vec<u8>) -> Result<Sst> {
    let (table, unknown) = open_known_table(Box::new(MemFile(bytes)))?;
    Ok(Sst { table, unknown })
}

/// Makes an SST of `keys` puts and tombstones, and one key outside the domain of the prefix extractor.
pub fn sst(format_version: u32, keys: u64) -> Vec<u8> {
    sst_under(ChecksumType::Xxh3, format_version, keys)
}

/// Like [`sst`], with checksums of the type `checksum`.
pub fn sst_under(checksum: ChecksumType, format_version: u32, keys: u64) -> Vec<u8> {
    let mut plan = tables::plan();
    plan.output.table.format_version = format_version;
    plan.output.table.checksum = checksum;
    plan.output.table.index.format_version = format_version;
    plan.output.table.block_size = 256;
    plan.output.table.filter = Some(FilterPlan {
        prefix_extractor: Some(PrefixExtractor::Fixed(4)),
        ..FilterPlan::whole_keys(10_000)
    });
    plan.output.properties.filter_policy_name = Some("bloomfilter".to_owned());
    plan.output.properties.prefix_extractor_name = Some("rocksdb.FixedPrefix.4".to_owned());
    let entry = |i: u64| {
        let key = match i {
            0 => b"0".to_vec(),
            _ => format!("{:04}-{i:08}", i / 7).into_bytes(),
        };
        match i % 5 {
            0 => Entry::new(&key, i + 1, DELETE, b""),
            _ => Entry::new(&key, i + 1, PUT, &[i as u8; 20]),
        }
    };
    let entries: Vec<_> = (0..keys).map(entry).collect();
    tables::one_file(&plan, &entries)
}
