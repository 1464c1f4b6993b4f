//! Tables in memory, for tests.

use std::sync::{Arc, Mutex};

use rockmill_core::{
    Cutting, Error, FilterPlan, InputTable, KeyRange, Plan, PropertiesPlan, RangesBeneath, ReadAt,
    Result, Rules, SstFile, SstSink, TablePlan, kv_hash, open_table,
};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionSettings;
use rockmill_format::filter::FilterFormat;
use rockmill_format::index::{IndexSettings, IndexShortening};
use rockmill_format::key::{ValueType, pack_tag};
use rockmill_format::prefix::PrefixExtractor;

const NAME: &str = "000007.sst";

#[derive(Debug)]
struct MemFile(Vec<u8>);

impl ReadAt for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(buf.len())?))
            .ok_or_else(|| Error::corruption(NAME, offset, "file ends too early"))?;
        buf.copy_from_slice(found);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn name(&self) -> &str {
        NAME
    }
}

#[derive(Default, Clone)]
struct MemSink(Arc<Mutex<Vec<u8>>>);

impl SstSink for MemSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        Ok((1, Box::new(self.clone())))
    }
}

impl SstFile for MemSink {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0
            .lock()
            .expect("no writer panicked")
            .extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn plan(format_version: u32) -> Plan {
    Plan {
        range: KeyRange::default(),
        rules: Rules {
            snapshots: Vec::new(),
            bottommost: false,
            beneath: RangesBeneath::Unknown,
            enforce_single_del_contracts: true,
        },
        table: TablePlan {
            format_version,
            checksum: ChecksumType::Xxh3,
            block_size: 256,
            restart_interval: 16,
            delta_keys: true,
            common_prefix: false,
            index: IndexSettings {
                format_version,
                restart_interval: 1,
                shortening: IndexShortening::Separators,
                common_prefix: false,
            },
            compression: CompressionSettings::none(),
            compress_index: false,
            filter: Some(FilterPlan {
                format: FilterFormat::FastLocalBloom,
                millibits_per_key: 10_000,
                whole_key_filtering: true,
                prefix_extractor: Some(PrefixExtractor::Fixed(4)),
                optimize_filters_for_memory: false,
            }),
        },
        cutting: Cutting {
            single_file: false,
            target_file_size: u64::MAX,
            max_output_file_size: u64::MAX,
            size_is_upper_bound: false,
            compression_ratio: (1, 1),
            grandparents: Vec::new(),
            max_compaction_bytes: u64::MAX,
            level_style: true,
        },
        properties: PropertiesPlan {
            db_id: b"some-db".to_vec(),
            session_id: "ABCDEFGHIJKLMNOPQRST".to_owned(),
            host: "host".to_owned(),
            checksum_seed: 0x1234_5678_9abc_def0,
            column_family_id: 0,
            column_family_name: b"default".to_vec(),
            output_level: 3,
            filter_policy_name: Some("bloomfilter".to_owned()),
            prefix_extractor_name: Some("rocksdb.FixedPrefix.4".to_owned()),
            whole_key_filtering: true,
            decouple_partitioned_filters: false,
            merge_operator_name: None,
            compression_options: String::new(),
            now: 1_700_000_000,
            ancestors: Vec::new(),
            newest_key_time: 0,
        },
        paranoid_hash: false,
        file_checksum: false,
    }
}

/// An SST of `keys` puts and tombstones, and one key outside the domain of the prefix extractor.
pub fn sst(format_version: u32, keys: u64) -> Vec<u8> {
    let mut sink = MemSink::default();
    let file = sink.clone();
    let plan = plan(format_version);
    let mut writer = SstWriter::new(&plan, &mut sink).expect("a plan that works");
    for i in 0..keys {
        let key = match i {
            0 => b"0".to_vec(),
            _ => format!("{:04}-{i:08}", i / 7).into_bytes(),
        };
        let (kind, value) = match i % 5 {
            0 => (ValueType::Deletion, Vec::new()),
            _ => (ValueType::Value, vec![i as u8; 20]),
        };
        let tag = pack_tag(i + 1, kind as u8);
        let hash = kv_hash(&key, &value);
        writer.emit(&key, tag, &value, hash, true).expect("memory");
    }
    writer.finish().expect("memory");
    std::mem::take(&mut *file.0.lock().expect("no writer panicked"))
}

/// Opens an SST in memory.
pub fn open(bytes: Vec<u8>) -> Result<InputTable> {
    open_table(Box::new(MemFile(bytes)))
}
