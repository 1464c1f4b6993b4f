//! The folder of a backup of RocksDB's BackupEngine, `private/N`, and the files that it shares with other backups
//! (`utilities/backup/backup_engine.cc`).
//!
//! ```text
//! meta/7                                    a line for each file of backup 7: shared_checksum/000012_sSESSION.sst crc32 ..
//! private/7/                                CURRENT, MANIFEST, OPTIONS, logs
//! shared/000012.sst
//! shared_checksum/000012_sSESSION.sst       or 000012_CRC_SIZE.sst: databases of several histories have a file 12
//! ```

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files that the backup in `dir` shares with other backups: their names in a database, and where they are.
/// There are none if the folder is not one of a backup.
pub fn shared_files(dir: &Path) -> Vec<(String, PathBuf)> {
    files_of(dir).unwrap_or_default()
}

/// Whether a folder is one of a backup. It has all logs of the backup.
pub fn is_backup(dir: &Path) -> bool {
    files_of(dir).is_some()
}

/// The path of a database's file: its own, or, if that is missing in the folder of a backup, the one in the folder that backups
/// share.
pub fn shared_path(path: PathBuf) -> PathBuf {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return path;
    };
    if path.exists() {
        return path;
    }
    let shared = shared_files(dir).into_iter();
    let mut shared = shared.filter(|(known, _)| name == known.as_str());
    shared.next().map_or(path, |(_, shared)| shared)
}

fn files_of(dir: &Path) -> Option<Vec<(String, PathBuf)>> {
    let dir = fs::canonicalize(dir).ok()?;
    let backups = dir.parent().filter(|parent| parent.ends_with("private"))?;
    let backups = backups.parent()?;
    let meta = fs::read(backups.join("meta").join(dir.file_name()?)).ok()?;
    let meta = String::from_utf8_lossy(&meta);
    let files = meta.lines().filter_map(|line| {
        let (folder, name) = line.split(' ').next()?.split_once('/')?;
        let is_plain = !name.is_empty() && !name.contains('/') && name != "..";
        let in_database = match folder {
            "shared" => name.to_owned(),
            "shared_checksum" => {
                let (number, rest) = name.split_once('_')?;
                format!("{number}.{}", rest.rsplit_once('.')?.1)
            }
            _ => return None,
        };
        is_plain.then(|| (in_database, backups.join(folder).join(name)))
    });
    Some(files.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_backup_tells_which_shared_files_it_has() {
        let backups = tempfile::tempdir().expect("a folder");
        let backups = fs::canonicalize(backups.path()).expect("it is there");
        let dir = backups.join("private/7");
        fs::create_dir_all(&dir).expect("made");
        fs::create_dir(backups.join("meta")).expect("made");
        let path = |name: &str| shared_path(dir.join(name));
        assert_eq!(path("000012.sst"), dir.join("000012.sst"));
        let meta = "1700000000\n5\nmetadata 6162\n6\n\
            private/7/CURRENT crc32 1\nshared_checksum/000012_sABC.sst crc32 2\nshared/000013.sst crc32 3\n\
            shared_checksum/000014_77_1000.blob crc32 4\nshared/../meta crc32 5\nshared_checksum/bad crc32 6\n";
        fs::write(backups.join("meta/7"), meta).expect("written");
        let shared = backups.join("shared_checksum");
        assert_eq!(path("000012.sst"), shared.join("000012_sABC.sst"));
        assert_eq!(path("000013.sst"), backups.join("shared/000013.sst"));
        assert_eq!(path("000014.blob"), shared.join("000014_77_1000.blob"));
        assert_eq!(path("000015.sst"), dir.join("000015.sst"));
        assert_eq!(shared_files(&dir).len(), 3);
        // A file in the backup's own folder comes first.
        fs::write(dir.join("000012.sst"), "").expect("written");
        assert_eq!(path("000012.sst"), dir.join("000012.sst"));
        assert!(shared_files(&backups.join("private")).is_empty());
    }
}
