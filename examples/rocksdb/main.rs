//! Compacts a database with Rockmill. The argument is the folder of a new database.

use rockmill_rocksdb::SetCompactionService;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: rocksdb FOLDER")?;
    let rockmill = rockmill_rocksdb::Service::builder()
        .min_job_bytes(0)
        .build()?;
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(1 << 20);
    options.set_compaction_service(&rockmill);
    let db = rocksdb::DB::open(&options, path)?;
    for i in 0..100_000_u32 {
        let key = format!("key{:08}", i * 7919 % 100_000);
        db.put(&key, &key)?;
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    println!("{}", rockmill.stats());
    Ok(())
}
