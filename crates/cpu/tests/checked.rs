//! A file whose blocks do not have the intended contents is never finished.

use rockmill_testkit::cases as common;

use common::{Entry, MemSink, PUT, plan};
use rockmill_core::{ErrorKind, OutputFile, Result, kv_hash};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::compression::{CompressionSettings, CompressionType};

/// Writes entries, of which number `changed` reaches the writer altered.
fn write(entries: &[Entry], changed: usize, kind: CompressionType) -> Result<Vec<OutputFile>> {
    let mut plan = plan();
    plan.output.table.compression = CompressionSettings {
        kind,
        ..CompressionSettings::none()
    };
    let mut sink = MemSink::numbered_from(1);
    let mut writer = SstWriter::new(&plan.output, &mut sink)?;
    for (i, entry) in entries.iter().enumerate() {
        let decoded = kv_hash(&entry.key, &entry.value);
        let mut value = entry.value.clone();
        if i == changed {
            value[0] ^= 1;
        }
        writer.emit(&entry.key, entry.tag, &value, decoded, true)?;
    }
    writer.finish()
}

fn ascending() -> Vec<Entry> {
    let entry = |i: u64| Entry::new(format!("key{i:06}").as_bytes(), 1 + i, PUT, b"some value");
    (0..20_000).map(entry).collect()
}

const COMPRESSIONS: [CompressionType; 2] = [CompressionType::None, CompressionType::Lz4];

#[test]
fn what_was_meant_passes() {
    let entries = ascending();
    for kind in COMPRESSIONS {
        let files = write(&entries, entries.len(), kind).expect("nothing was changed");
        let written: u64 = files.iter().map(|file| file.content.entries()).sum();
        assert_eq!(written, entries.len() as u64);
    }
}

#[test]
fn a_value_that_changed_on_its_way_is_found() {
    let entries = ascending();
    for kind in COMPRESSIONS {
        for changed in [0, 1, 9_999, entries.len() - 1] {
            let error = write(&entries, changed, kind).expect_err("one bit differs");
            assert_eq!(error.kind, ErrorKind::Verification, "{error}");
        }
    }
}

#[test]
fn entries_out_of_order_are_found() {
    for at in [1, 10_000] {
        let mut entries = ascending();
        entries.swap(at - 1, at);
        for kind in COMPRESSIONS {
            let error = write(&entries, entries.len(), kind).expect_err("two are exchanged");
            assert_eq!(error.kind, ErrorKind::Verification, "{error}");
        }
    }
}
