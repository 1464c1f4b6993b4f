//! A directory, read-only. Another process may have the database open and write to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, Result};
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_snapshot::unflushed::Unflushed;
use rockmill_storage::{LocalStorage, Storage, base_name};

use crate::Database;
use crate::engine::ScanEngine;
use crate::iterators::Iterators;
use crate::memory_table::MemoryTable;
use crate::options::ReadOptions;
use crate::table::TableFolder;
use crate::version::Version;
use crate::view::{Family, View};

/// How often files are opened anew if some vanish meanwhile.
const ATTEMPTS: usize = 8;

/// A directory with a database, to which nothing is written.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    iterators: Option<Arc<dyn Iterators>>,
}

impl Directory {
    /// A directory with a database.
    ///
    /// # Errors
    /// Storage if there is no such directory; Declined if it holds no database.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let names = LocalStorage.list(path);
        let names = names.map_err(|e| Error::storage(&name, "list the directory", &e))?;
        if !names.iter().any(|name| name == "CURRENT") {
            let what = "the directory holds no RocksDB database: there is no file CURRENT";
            return Err(Error::declined(DeclineReason::Manifest, what).in_file(&name));
        }
        Ok(Self {
            path: path.to_owned(),
            iterators: None,
        })
    }

    /// The same directory, where these iterators read what tables alone do not tell.
    #[must_use]
    pub fn with_iterators(self, iterators: Arc<dyn Iterators>) -> Self {
        Self {
            iterators: Some(iterators),
            ..self
        }
    }

    fn tree(&self, storage: &dyn Storage) -> Result<Tree> {
        let mut follower = TreeFollower::default();
        follower.refresh(storage, &self.path, (0, 0), &CancelToken::new())?;
        Ok(follower.tree().clone())
    }

    /// A view of one column family as another view of this directory had it, perhaps in another process.
    ///
    /// # Errors
    /// Declined if there is no such column family, or not these files and logs any more, or no memory for what is not
    /// flushed; as those of [`Database::view`].
    pub fn at(&self, engine: &Arc<ScanEngine>, version: &Version) -> Result<Arc<View>> {
        self.attempt(engine, Some(version))
    }

    fn attempt(&self, engine: &Arc<ScanEngine>, version: Option<&Version>) -> Result<Arc<View>> {
        /// Time in which an edit of the MANIFEST is installed, and a compaction's files are deleted.
        const PAUSE: Duration = Duration::from_millis(5);
        let mut trouble = None;
        for attempt in 0..ATTEMPTS {
            engine.storage.clock().pause(PAUSE * attempt as u32);
            match self.try_view(engine, version) {
                Ok(Some(view)) => return Ok(Arc::new(view)),
                Ok(None) => trouble = None,
                // A file may have vanished.
                Err(error) if error.kind == ErrorKind::Storage => trouble = Some(error),
                Err(error) => return Err(error),
            }
        }
        let what = format!(
            "another process changes the database while its files are opened; {ATTEMPTS} attempts have failed"
        );
        Err(trouble.unwrap_or_else(|| {
            let error = Error::declined(DeclineReason::InputMissing, what);
            error.in_file(&self.path.display().to_string())
        }))
    }

    /// Opens all files, or those of a version; nothing if the database has changed meanwhile.
    fn try_view(
        &self,
        engine: &Arc<ScanEngine>,
        version: Option<&Version>,
    ) -> Result<Option<View>> {
        let cancel = CancelToken::new();
        let storage = &*engine.storage;
        let mut follower = TreeFollower::default();
        follower.refresh(storage, &self.path, (0, 0), &cancel)?;
        let (tree, position) = (follower.tree().clone(), follower.position());
        let options = ReadOptions::read(storage, &self.path)?;
        let folder = engine.folder(&self.path, options.io);
        let mut families = BTreeMap::new();
        for (id, tree) in &tree.column_families {
            if version.is_some_and(|version| !version.is_of(&tree.name)) {
                continue;
            }
            let mut family = Family::new(*id, tree, position.clone(), &options);
            family.iterators.clone_from(&self.iterators);
            if let Some(version) = version {
                version.choose(&mut family)?;
            }
            if family.unread.is_none() {
                hold_files(&mut family, &folder)?;
            }
            families.insert(*id, family);
        }
        if let Some(version) = version.filter(|_| families.is_empty()) {
            return Err(version.gone());
        }
        let has_unflushed = version.is_none_or(|version| version.log_number.is_some());
        let is_wanted = |id: u32| {
            let family = families.get(&id).filter(|_| has_unflushed);
            family.is_some_and(|family| family.unread.is_none())
        };
        let most = engine.max_unflushed_bytes();
        let logs = &options.log_folder;
        let mut last_sequence = tree.last_sequence;
        match Unflushed::read(storage, logs, &tree, is_wanted, most, &cancel) {
            Ok(unflushed) => {
                last_sequence = last_sequence.max(unflushed.last_sequence);
                for (id, memtable) in &unflushed.families {
                    let table = MemoryTable::new(memtable, engine, &cancel)?;
                    if let Some(family) = families.get_mut(id) {
                        family.unflushed.push(Arc::new(table));
                    }
                }
            }
            // A version would lack them: who has its pieces does not ask for others.
            Err(error) if matches!(error.kind, ErrorKind::Declined(_)) && version.is_none() => {
                for family in families.values_mut() {
                    family.unread.get_or_insert_with(|| error.to_string());
                }
            }
            Err(error) => return Err(error),
        }
        follower.refresh(storage, &self.path, (0, 0), &cancel)?;
        let now = &follower.tree().column_families;
        let is_same = |id: &u32| now.get(id) == tree.column_families.get(id);
        let is_same = match version {
            Some(_) => families.keys().all(is_same),
            None => *now == tree.column_families,
        };
        if !is_same {
            return Ok(None);
        }
        let files = tree
            .column_families
            .values()
            .flat_map(|f| f.levels.values());
        let sequences = files
            .flat_map(BTreeMap::values)
            .map(|file| file.largest_seqno);
        let named = families
            .into_iter()
            .map(|(id, family)| (name_of(&tree.column_families[&id]), family));
        let sequence = sequences.fold(last_sequence, u64::max);
        let sequence = match version {
            // The logs have less than another process has in its memory.
            Some(version) if has_unflushed && sequence < version.sequence => {
                return Err(version.gone());
            }
            Some(version) => version.sequence,
            None => sequence,
        };
        let view = View::new(engine, &self.path, &options, sequence, named.collect());
        Ok(Some(view))
    }
}

impl Database for Directory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn families(&self) -> Result<Vec<String>> {
        let tree = self.tree(&LocalStorage)?;
        Ok(tree.column_families.values().map(name_of).collect())
    }

    fn view(&self, engine: &Arc<ScanEngine>) -> Result<Arc<View>> {
        self.attempt(engine, None)
    }
}

fn name_of(family: &ColumnFamily) -> String {
    names::escape(&family.name)
}

/// Opens the files, which stay open as long as the view lives.
fn hold_files(family: &mut Family, folder: &TableFolder) -> Result<()> {
    for file in family.files_mut() {
        let open = folder.open(file.meta.number).map_err(|error| {
            let doing = format!("open it in {ATTEMPTS} attempts");
            Error::storage(&base_name(&folder.file(file.meta.number)), &doing, &error)
        })?;
        file.held = Some(open);
    }
    Ok(())
}
