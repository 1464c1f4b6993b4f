//! A bit that is flipped in what the device makes, in its memory or on the way back, does not get into a file or a row.

use super::*;

/// Flips a bit of what the device makes, and returns the error of the task, which must notice it.
fn notices(
    faults: &Faults,
    moment: Moment,
    place: BitAddress,
    what: &str,
    trouble: impl FnOnce() -> Option<Error>,
) -> Error {
    faults.flip(moment, place);
    let trouble = trouble();
    assert_eq!(faults.struck(), 1, "{what} {moment:?} {place:?}");
    let error = trouble.unwrap_or_else(|| panic!("{what} {moment:?} {place:?} passed"));
    assert_eq!(
        error.kind,
        ErrorKind::Verification,
        "{what} {moment:?} {place:?}: {error}"
    );
    error
}

/// One bit of a byte, another one in the next byte.
fn a_bit(region: Region, byte: u64) -> BitAddress {
    let bit = (byte % 8) as u32;
    BitAddress { region, byte, bit }
}

/// Bytes of a region to alter, one at a time.
fn bytes_of(moment: Moment, region: Region) -> Vec<u64> {
    const FILE_INDEX_BYTES: u64 = 48;
    const FOUND_FILE_BYTES: u64 = 24;
    const KEY_BYTES: u64 = 12 + 8;
    match (moment, region) {
        (_, Region::Entries) => (0..40).chain([500, 700, 900]).collect(),
        (_, Region::Second) => Vec::new(),
        (_, Region::Restarts) => (0..8).collect(),
        (_, Region::Trailer) => (0..5).collect(),
        (_, Region::Filter) => (0..74).collect(),
        (_, Region::Rows | Region::Merged) => (0..300).collect(),
        (Moment::Unsealed, _) => Vec::new(),
        (_, Region::Index) => (0..600).collect(),
        (_, Region::NextKey) => Vec::new(),
        // These have been copied back when the files are finished, or do not exist yet.
        (Moment::Finished, Region::Edges | Region::Sizes | Region::Found) => Vec::new(),
        (Moment::CopiedBack, Region::Edges) => (0..2 * KEY_BYTES).collect(),
        (Moment::CopiedBack, Region::Found) => (0..FOUND_FILE_BYTES).collect(),
        (Moment::CopiedBack, Region::Sizes) => (0..FILE_INDEX_BYTES).collect(),
    }
}

#[test]
fn a_byte_altered_in_device_memory_or_on_the_way_back_does_not_pass() {
    const REGIONS: [Region; 8] = [
        Region::Entries,
        Region::Restarts,
        Region::Trailer,
        Region::Filter,
        Region::Index,
        Region::Edges,
        Region::Sizes,
        Region::Found,
    ];
    let (faults, job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    for moment in [Moment::Finished, Moment::CopiedBack] {
        for region in REGIONS {
            for byte in bytes_of(moment, region) {
                notices(&faults, moment, a_bit(region, byte), "", || {
                    job.trouble(&backend)
                });
            }
            assert!(job.trouble(&backend).is_none(), "{moment:?} {region:?}");
        }
    }
    drop(backend);
    assert_eq!(faults.usage(), DeviceUsage::default());
}

/// The size in front of the compressed bytes: a decompressor that knows it need not read it.
#[test]
fn the_size_of_a_compressed_block_that_was_written_wrong_does_not_pass() {
    for (by, kind) in [
        (Implementation::Rockmill1, CompressionType::Lz4),
        (Implementation::Rockmill1, CompressionType::Zstd),
        (Implementation::Library, CompressionType::Lz4),
        (Implementation::Library, CompressionType::Lz4hc),
        (Implementation::Library, CompressionType::Zstd),
    ] {
        let (faults, job) = (Faults::none(), Job::compressed_by(by, kind));
        let backend = device().expect("it opens");
        for (byte, bit) in (0..2).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let region = Region::Second;
            let place = BitAddress { region, byte, bit };
            let what = format!("{by:?} {kind:?}");
            notices(&faults, Moment::Unsealed, place, &what, || {
                job.trouble(&backend)
            });
        }
        assert!(job.trouble(&backend).is_none());
    }
}

#[test]
fn a_row_altered_in_device_memory_or_on_the_way_back_does_not_pass() {
    let (faults, job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    for moment in [Moment::Unsealed, Moment::CopiedBack] {
        for byte in bytes_of(moment, Region::Rows) {
            let place = a_bit(Region::Rows, byte);
            notices(&faults, moment, place, "", || {
                job.trouble_with_rows(&backend)
            });
        }
        assert!(job.trouble_with_rows(&backend).is_none());
    }
}

#[test]
fn a_value_that_is_merged_wrong_does_not_pass() {
    let all = [
        Merging::UInt64Add,
        Merging::BytesXor,
        Merging::Append {
            delimiter: b", ".to_vec(),
            partial: true,
        },
    ];
    for merging in all {
        let (faults, mut job) = (Faults::none(), Job::new(CompressionType::None));
        let entries: Vec<_> = (0..900_u32)
            .map(|at| {
                let key = [b"m".as_slice(), &(at / 3).to_be_bytes()].concat();
                let value = u64::from(at).wrapping_mul(0x1234_5678_9abc_def1);
                let kind = [common::MERGE, common::MERGE, common::PUT][at as usize % 3];
                Entry::new(&key, u64::from(3000 - at), kind, &value.to_le_bytes())
            })
            .collect();
        let operands = common::one_file(&common::plan(), &entries);
        job.inputs.push(open(operands).expect("sound"));
        job.plan.rules.merging = Some(merging.clone());
        // Their range tombstones stay in the files.
        job.plan.rules.bottommost = false;
        job.files = job
            .compact(&CpuBackend, &CancelToken::new())
            .expect("sound");
        let backend = device().expect("it opens");
        assert!(job.trouble(&backend).is_none(), "{merging:?}");
        for byte in bytes_of(Moment::Unsealed, Region::Merged) {
            let (place, what) = (a_bit(Region::Merged, byte), format!("{merging:?}"));
            notices(&faults, Moment::Unsealed, place, &what, || {
                job.trouble(&backend)
            });
        }
        assert!(job.trouble(&backend).is_none());
    }
}

#[test]
fn a_batch_altered_on_the_way_back_does_not_pass() {
    let (faults, job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    let ways: [Trouble; 2] = [Job::trouble_with_scan, Job::trouble_with_groups];
    for (way, trouble_with) in ways.into_iter().enumerate() {
        for byte in bytes_of(Moment::CopiedBack, Region::Rows) {
            let (place, what) = (a_bit(Region::Rows, byte), way.to_string());
            notices(&faults, Moment::CopiedBack, place, &what, || {
                trouble_with(&job, &backend)
            });
        }
        assert!(trouble_with(&job, &backend).is_none());
    }
}

#[test]
fn a_data_block_that_was_written_wrong_does_not_pass_for_its_checksum_is_right() {
    let (faults, job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    let one_bit = bytes_of(Moment::Unsealed, Region::Entries).into_iter();
    let entries = one_bit.map(|byte| (Region::Entries, byte, (byte % 8) as u32));
    let every_bit = bytes_of(Moment::Unsealed, Region::Restarts).into_iter();
    let restarts = every_bit.flat_map(|byte| (0..8).map(move |bit| (Region::Restarts, byte, bit)));
    for (region, byte, bit) in entries.chain(restarts) {
        let place = BitAddress { region, byte, bit };
        notices(&faults, Moment::Unsealed, place, "", || {
            job.trouble(&backend)
        });
    }
    assert!(job.trouble(&backend).is_none());
}

#[test]
fn an_index_that_was_written_wrong_does_not_pass_for_its_checksum_is_right() {
    let (faults, mut job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    for (format_version, restart_interval) in [(2, 1), (5, 1), (6, 3), (8, 4)] {
        let table = &mut job.plan.output.table;
        table.format_version = format_version;
        table.index.format_version = format_version;
        table.index.restart_interval = restart_interval;
        job.files = job
            .compact(&CpuBackend, &CancelToken::new())
            .expect("sound");
        let first = open(job.files[0].bytes.clone()).expect("sound");
        let payload = first.meta.properties.index_size - BLOCK_TRAILER_SIZE as u64;
        for byte in 0..payload {
            let what = format!("format_version {format_version}, {payload} bytes");
            notices(
                &faults,
                Moment::Unsealed,
                a_bit(Region::Index, byte),
                &what,
                || job.compact(&backend, &CancelToken::new()).err(),
            );
        }
        assert!(job.trouble(&backend).is_none());
    }
}

#[test]
fn an_index_of_user_keys_does_not_pass_where_one_goes_on_in_the_next_block() {
    // The length, in `types.hpp:Key`.
    const NEXT_LEN: BitAddress = BitAddress {
        region: Region::NextKey,
        byte: 28,
        bit: 0,
    };
    const VERSIONS: std::ops::RangeInclusive<u64> = 20_001..=20_024;
    let (faults, mut job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    // Snapshots keep all versions of the first user key, half as much again as a block holds, and of all others the
    // newest: so a user key continues only behind the first block.
    let entry = |seq| Entry::new(b"j", seq, common::PUT, &common::noise(seq, 60));
    let entries: Vec<_> = VERSIONS.rev().map(entry).collect();
    job.inputs
        .push(open(common::one_file(&common::plan(), &entries)).expect("sound"));
    job.plan.rules.snapshots = VERSIONS.collect();
    job.plan.rules.bottommost = false;
    for shortening in [IndexShortening::None, IndexShortening::Separators] {
        job.plan.output.table.index.shortening = shortening;
        job.files = job
            .compact(&CpuBackend, &CancelToken::new())
            .expect("sound");
        let first = open(job.files[0].bytes.clone()).expect("sound");
        assert_eq!(first.meta.properties.index_key_is_user_key, 0);
        let [before, after] = [0, 1].map(|i| first.meta.index[i].separator.as_slice());
        assert!(before == b"j" && after != b"j");
        // With another next key the separator stays as it is, and loses its sequence number.
        let what = format!("{shortening:?}");
        let error = notices(&faults, Moment::Unsealed, NEXT_LEN, &what, || {
            job.trouble(&backend)
        });
        assert!(
            error
                .what
                .contains("do not decode as intended (code 8 at 0)"),
            "{error}"
        );
        assert!(job.trouble(&backend).is_none());
    }
}
