//! The table of the published scans of YCSB: an integer and five texts of 32 bytes.

use rust_rocksdb::Error;

use super::row::Row;
use super::{Part, Put, Table};

const ROWS: f64 = 5e6;
const FIELDS: u32 = 5;
/// `number` is below it.
const NUMBERS: u64 = 1000;

pub const TABLES: [Table; 1] = [Table {
    name: "usertable",
    columns: "id bigint not null, number bigint not null, field0 varchar not null, field1 varchar not null,
  field2 varchar not null, field3 varchar not null, field4 varchar not null",
    key: "ordered(i64) id",
    value: "i64le number, bytes(32) field0, bytes(32) field1, bytes(32) field2, bytes(32) field3, bytes(32) field4",
    rows,
    row_bytes: 176,
    make,
}];

fn rows(scale: f64) -> u64 {
    (scale * ROWS) as u64
}

fn make(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let (number, of) = (part.number as u64, part.of as u64);
    let end = |number| rows(part.scale) * number / of;
    let mut row = Row::default();
    for id in end(number - 1)..end(number) {
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        row.clear()
            .key64(id as i64)
            .i64(((mixed >> 32) % NUMBERS) as i64);
        for field in 0..FIELDS {
            let word = format!("{:016x}", mixed.rotate_left(field * 11));
            row.bytes(&word).bytes(&word);
        }
        put(&row)?;
    }
    Ok(())
}
