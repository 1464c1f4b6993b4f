//! The name of a file's contents in caches.

use std::fmt::Debug;

use rockmill_format::checksum::ChecksumType;
use rockmill_format::unique_id::internal_unique_id;

use crate::columns::has_groups;
use crate::hash::index_hash;
use crate::plan::TablePlan;
use crate::report::OutputFile;
use crate::table::InputTable;

/// Names the contents of an SST file, wherever the file is. It belongs to the file and not to a database: a file that was
/// ingested into two column families, or that a checkpoint shares, is the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    unique_id: [u64; 2],
    bytes: u64,
    /// Hash of the index as the file has it. A program that writes other blocks under the same id writes another index.
    index: u64,
}

impl FileIdentity {
    /// The identity of an opened table that has the unique id that the MANIFEST states. `None` as for
    /// [`FileIdentity::of`], and if the table has another id.
    pub fn stated(table: &InputTable, stated: [u64; 2]) -> Option<Self> {
        (own_id(table) == stated).then(|| Self::of(table, stated))?
    }

    /// Whether an opened table is another one than the MANIFEST states. Zeros state none: RocksDB's old versions write no
    /// unique id (`table/unique_id_impl.h:kNullUniqueId64x2`).
    pub fn is_other(table: &InputTable, stated: Option<[u64; 2]>) -> bool {
        stated.is_some_and(|stated| stated != [0; 2] && stated != own_id(table))
    }

    /// The identity of an opened table by its own word. `None` as for [`FileIdentity::of`].
    pub fn own(table: &InputTable) -> Option<Self> {
        Self::of(table, own_id(table))
    }

    /// The identity of an opened table with RocksDB's unique id. `None` if nothing of it may be cached: it has no id, its
    /// blocks have no checksums, or they do not lie in the order of the index.
    pub fn of(table: &InputTable, unique_id: [u64; 2]) -> Option<Self> {
        let meta = &table.meta;
        let has_checksums = meta.footer.guard.checksum != ChecksumType::None;
        if unique_id == [0; 2] || !has_checksums || !has_groups(table) {
            return None;
        }
        let blocks = meta.index.iter();
        let blocks = blocks.map(|entry| (entry.separator.as_slice(), entry.handle));
        Some(Self {
            unique_id,
            bytes: meta.file_size,
            index: index_hash(blocks),
        })
    }

    /// The identity that a finished file will have. `None` if its blocks have no checksums.
    pub fn of_output(file: &OutputFile, plan: &TablePlan) -> Option<Self> {
        let properties = &file.properties;
        (plan.checksum != ChecksumType::None).then(|| Self {
            unique_id: internal_unique_id(
                &properties.db_id,
                &properties.db_session_id,
                properties.orig_file_number,
            ),
            bytes: file.size,
            index: file.index_hash,
        })
    }

    /// RocksDB's unique id, as the MANIFEST has it.
    pub fn unique_id(&self) -> [u64; 2] {
        self.unique_id
    }
}

/// RocksDB's unique id by the properties of a table.
fn own_id(table: &InputTable) -> [u64; 2] {
    let properties = &table.meta.properties;
    internal_unique_id(
        &properties.db_id,
        &properties.db_session_id,
        properties.orig_file_number,
    )
}

/// A file of which a device may keep data blocks, and its place in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cacheable {
    /// The file.
    pub identity: FileIdentity,
    /// Its level. Files of shallow levels are read again sooner.
    pub level: u32,
    /// A number for the database. If its later versions do not list the file, the file leaves the cache.
    pub database: u64,
}

/// A new file whose data blocks a device has cached. No task finds them before the file is installed, and they are dropped
/// with this value if it never is.
pub trait CachedOutput: Debug + Send + Sync {
    /// RocksDB has taken the file into this database.
    fn installed(&self, database: u64);
}
