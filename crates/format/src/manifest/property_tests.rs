use super::test_encoder::encode_edit;
use super::tests::{REAL, file, read_in_pieces};
use super::*;
use crate::log::test_encoder::encode_log;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;

prop_compose! {
    fn any_file()(
        numbers: [u64; 9],
        keys: ([u8; 9], [u8; 12]),
        flags: [bool; 3],
        path_id in 0u8..4,
        checksum: Option<Vec<u8>>,
        temperature in prop::sample::select(Temperature::ALL.to_vec()),
        unique_id in prop::option::of([1u64.., 0u64..]),
        oldest_blob_file in prop::option::of(1u64..),
    ) -> FileMeta {
        FileMeta {
            number: numbers[0],
            size: numbers[1],
            smallest: keys.0.to_vec(),
            largest: keys.1.to_vec(),
            smallest_seqno: numbers[2],
            largest_seqno: numbers[3],
            path_id,
            marked_for_compaction: flags[0],
            oldest_blob_file,
            oldest_ancester_time: numbers[4],
            file_creation_time: numbers[5],
            file_checksum_func_name: checksum.as_ref().map_or(b"Unknown".to_vec(), |_| b"crc".to_vec()),
            file_checksum: checksum.unwrap_or_default(),
            temperature,
            unique_id,
            epoch_number: numbers[6],
            compensated_range_deletion_size: numbers[7],
            tail_size: numbers[8],
            user_defined_timestamps_persisted: flags[1],
            has_timestamps: flags[2],
        }
    }
}

prop_compose! {
    fn any_edit()(
        texts: (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>),
        numbers: [Option<u64>; 6],
        synced_logs: Vec<(u64, u64)>,
        ids: (Option<u32>, u32, Option<u32>),
        flags: (bool, bool, Option<bool>),
        deleted_files: Vec<(u32, u64)>,
        new_files in prop::collection::vec((any::<u32>(), any_file()), 0..4),
        full_history_ts_low in prop::option::of(prop::collection::vec(any::<u8>(), 1..9)),
    ) -> VersionEdit {
        VersionEdit {
            db_id: texts.0,
            comparator: texts.1,
            log_number: numbers[0],
            prev_log_number: numbers[1],
            next_file_number: numbers[2],
            max_column_family: ids.0,
            min_log_number_to_keep: numbers[3],
            last_sequence: numbers[4],
            deleted_files,
            new_files,
            column_family: ids.1,
            column_family_add: texts.2,
            column_family_drop: flags.0,
            atomic_group_remaining: ids.2,
            touches_blob_files: flags.1,
            full_history_ts_low,
            persist_user_defined_timestamps: flags.2,
            synced_logs,
            first_tracked_log: numbers[5],
        }
    }
}

/// A consistent history: each step adds a file to a level, or moves or deletes an existing one.
fn history(steps: &[(Index, u32, bool)]) -> (Vec<VersionEdit>, BTreeMap<u64, u32>) {
    let mut edits = Vec::new();
    let mut model = BTreeMap::new();
    for (next, (pick, level, remove)) in (1..).zip(steps) {
        let mut edit = VersionEdit {
            last_sequence: Some(next),
            ..VersionEdit::default()
        };
        let chosen =
            (!model.is_empty()).then(|| *model.keys().nth(pick.index(model.len())).unwrap());
        let added = match chosen {
            Some(number) if *remove || pick.index(2) == 0 => {
                edit.deleted_files.push((model[&number], number));
                model.remove(&number);
                Some(number).filter(|_| !remove)
            }
            _ => Some(next),
        };
        if let Some(number) = added {
            edit.new_files.push((*level, file(number)));
            model.insert(number, *level);
        }
        edits.push(edit);
    }
    (edits, model)
}

fn cuts_of(log: &[u8], cuts: &[Index]) -> Vec<usize> {
    let mut cuts: Vec<_> = cuts.iter().map(|c| c.index(log.len() + 1)).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #[test]
    fn edits_round_trip(edit in any_edit()) {
        prop_assert_eq!(VersionEdit::decode(&encode_edit(&edit)), Ok(edit));
    }

    #[test]
    fn decoding_a_mutated_edit_is_total(
        edit in any_edit(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        cut: Index,
    ) {
        let mut bytes = encode_edit(&edit);
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len() + 1)]] {
            match VersionEdit::decode(bytes) {
                Ok(edit) => drop(Tree::new().apply(&edit)),
                Err(error) => prop_assert!(error.offset <= bytes.len() as u64),
            }
        }
    }

    #[test]
    fn records_do_not_depend_on_the_pieces(
        lens in prop::collection::vec(prop_oneof![0usize..40, 32_700usize..32_800, 0usize..100_000], 0..6),
        cuts: Vec<Index>,
    ) {
        let records: Vec<Vec<u8>> = lens.iter().map(|&n| (0..n).map(|i| (i % 251) as u8).collect()).collect();
        let log = encode_log(&records);
        let read = read_in_pieces(&log, &cuts_of(&log, &cuts)).unwrap();
        prop_assert_eq!(read.last().map_or(0, |r| r.end), log.len() as u64);
        let payloads: Vec<_> = read.into_iter().map(|r| r.payload).collect();
        prop_assert_eq!(payloads, records);
    }

    #[test]
    fn the_tree_is_that_of_the_edits_whatever_the_pieces(
        steps in prop::collection::vec((any::<Index>(), 0u32..7, prop::bool::weighted(0.2)), 0..600),
        cuts: Vec<Index>,
    ) {
        let (edits, model) = history(&steps);
        let log = encode_log(&edits.iter().map(encode_edit).collect::<Vec<_>>());
        let mut follower = Follower::new();
        let mut from = 0;
        for to in cuts_of(&log, &cuts).into_iter().chain([log.len()]) {
            follower.feed(&log[from..to]).unwrap();
            from = to;
            prop_assert!(follower.bytes_consumed() <= to as u64);
        }
        prop_assert_eq!(follower.bytes_consumed(), log.len() as u64);
        let cf = &follower.tree().column_families[&0];
        let found: BTreeMap<u64, u32> = cf.levels.iter()
            .flat_map(|(level, files)| files.keys().map(|n| (*n, *level)))
            .collect();
        prop_assert_eq!(&found, &model);
        prop_assert!(model.iter().all(|(n, level)| cf.file(*n).unwrap().0 == *level));
    }

    #[test]
    fn a_damaged_log_gives_an_error_or_the_records_before_the_damage(
        lens in prop::collection::vec(1usize..50_000, 1..4),
        at: Index,
        flip in 1u8..,
    ) {
        let records: Vec<Vec<u8>> = lens.iter().map(|&n| vec![n as u8; n]).collect();
        let mut log = encode_log(&records);
        let at = at.index(log.len());
        log[at] ^= flip;
        match read_in_pieces(&log, &[]) {
            Err(error) => prop_assert!(error.offset <= at as u64),
            Ok(read) => {
                // Damage in padding does not matter; a longer last record waits for more bytes.
                let payloads: Vec<_> = read.into_iter().map(|r| r.payload).collect();
                prop_assert!(records.starts_with(&payloads));
            }
        }
    }

    #[test]
    fn a_damaged_real_manifest_gives_an_error_or_less(at: Index, flip in 1u8..) {
        let mut log = REAL.to_vec();
        let at = at.index(log.len());
        log[at] ^= flip;
        let mut follower = Follower::new();
        match follower.feed(&log) {
            Err(error) => prop_assert!(error.offset <= at as u64),
            Ok(()) => prop_assert!(follower.bytes_consumed() <= at as u64),
        }
    }

    #[test]
    fn following_any_bytes_is_total(bytes: Vec<u8>, edits in prop::collection::vec(any::<Vec<u8>>(), 0..4)) {
        let _ = Follower::new().feed(&bytes);
        let _ = Follower::new().feed(&encode_log(&edits));
    }
}
