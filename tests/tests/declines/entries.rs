//! Entries that Rockmill leaves to RocksDB, detected in the inputs' properties or during the merge.

use rockmill_tests::batches;
use rockmill_tests::content::Content;
use rockmill_tests::harness::put;
use rockmill_tests::reasons::{MERGE_OPERANDS, SINGLE_DELETE_CONTRACT};
use rust_rocksdb::{DB, MergeOperands, Options};

use crate::trial::{declines, plain, takes};

/// Appends the operands to the value, in order.
fn append(_key: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut joined = value.unwrap_or_default().to_vec();
    for operand in operands {
        joined.extend_from_slice(operand);
    }
    Some(joined)
}

fn with_merge_operator(options: &mut Options) {
    options.set_merge_operator_associative("append", append);
}

#[test]
fn merge_operands() {
    declines(&[MERGE_OPERANDS], with_merge_operator, |db| {
        let mut content = plain(db);
        for key in content.keys().step_by(3).cloned().collect::<Vec<_>>() {
            db.merge(&key, b"+operand").expect("merge");
            content
                .get_mut(&key)
                .expect("present")
                .extend_from_slice(b"+operand");
        }
        db.merge(b"only an operand", b"+alone").expect("merge");
        content.insert(b"only an operand".to_vec(), b"+alone".to_vec());
        db.flush().expect("flush");
        content
    });
}

#[test]
fn a_merge_operator_without_operands_is_no_reason() {
    takes(with_merge_operator, plain);
}

#[test]
fn range_tombstones_are_no_reason() {
    takes(
        |_| {},
        |db| {
            let mut content = plain(db);
            let (from, to) = (b"key00000100".as_slice(), b"key00000300".as_slice());
            let family = db.cf_handle("default").expect("open");
            db.delete_range_cf(family, from, to)
                .expect("delete a range");
            content.retain(|key, _| !(from..to).contains(&key.as_slice()));
            db.flush().expect("flush");
            content
        },
    );
}

#[test]
fn a_range_tombstone_alone_in_its_file_is_no_reason() {
    takes(
        |_| {},
        |db| {
            let mut content = plain(db);
            let family = db.cf_handle("default").expect("open");
            db.delete_range_cf(family, b"a", b"z")
                .expect("delete a range");
            db.flush().expect("flush");
            content.clear();
            put(db, &mut content, b"later", b"value");
            db.flush().expect("flush");
            content
        },
    );
}

/// Writes one entity among plain keys; a plain read returns its default column.
fn write_an_entity(db: &DB) -> Content {
    let mut content = plain(db);
    db.write(&batches::entity(b"entity", b"default"))
        .expect("write the entity");
    content.insert(b"entity".to_vec(), b"default".to_vec());
    db.flush().expect("flush");
    content
}

#[test]
fn wide_columns_are_no_reason() {
    takes(|_| {}, write_an_entity);
}

#[test]
fn a_wide_column_entity_that_is_overwritten_in_another_file_is_no_reason() {
    takes(
        |_| {},
        |db| {
            let mut content = write_an_entity(db);
            put(db, &mut content, b"entity", b"a plain value");
            db.flush().expect("flush");
            content
        },
    );
}

#[test]
fn single_deletes_within_their_contract_are_no_reason() {
    takes(
        |_| {},
        |db| {
            let mut content = plain(db);
            for key in [b"single 1", b"single 2"] {
                put(db, &mut content, key, b"value");
            }
            db.flush().expect("flush");
            db.single_delete(b"single 2").expect("single delete");
            content.remove(b"single 2".as_slice());
            db.flush().expect("flush");
            content
        },
    );
}

/// Writes a Put, a Delete and a SingleDelete of one key, each in a separate file.
fn single_delete_over_a_delete(db: &DB) -> Content {
    let content = plain(db);
    db.put(b"mixed", b"value").expect("put");
    db.flush().expect("flush");
    db.delete(b"mixed").expect("delete");
    db.flush().expect("flush");
    db.single_delete(b"mixed").expect("single delete");
    db.flush().expect("flush");
    content
}

#[test]
fn a_single_delete_over_a_delete_is_rocksdbs_to_report() {
    // RocksDB's own compaction then fails as well; the test checks that nothing is lost.
    declines(
        &[SINGLE_DELETE_CONTRACT],
        |options| options.set_enforce_single_del_contracts(true),
        single_delete_over_a_delete,
    );
}

#[test]
fn a_single_delete_over_a_delete_that_the_user_allows_is_no_reason() {
    takes(
        |options| options.set_enforce_single_del_contracts(false),
        single_delete_over_a_delete,
    );
}
