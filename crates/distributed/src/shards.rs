//! Databases of several nodes as one table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::error::DataFusionError;
use futures::future::try_join_all;
use rockmill_core::{DeclineReason, Error, ErrorKind, KeyRange, MergeOperators, Result};
use rockmill_format::names;
use rockmill_scan::{Database, FamilySnapshot, Remote, ScanEngine, Snapshot};
use rockmill_sql::{DatabaseLocation, PinReply, PinRequest};
use serde::Deserialize;
use url::Url;

use crate::address::Address;
use crate::channels::{Channels, threads};
use crate::pin::PinClient;

/// Maximum number of shards of a list.
const MAX_SHARDS: usize = 4096;

/// The shards of tables, as a file lists them.
#[derive(Debug, Clone)]
pub struct ShardList {
    file: PathBuf,
    shards: Vec<Shard>,
}

#[derive(Debug, Clone)]
struct Shard {
    address: Address,
    path: PathBuf,
    log_folder: Option<PathBuf>,
    family: String,
    range: KeyRange,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    shard: Vec<ListedShard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedShard {
    family: String,
    url: String,
    from: Option<String>,
    to: Option<String>,
    wal_dir: Option<PathBuf>,
}

impl ShardList {
    /// The list in a text; `file` is where it is.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str, file: &Path) -> std::result::Result<Self, String> {
        let listed: Listed =
            toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        if listed.shard.is_empty() || listed.shard.len() > MAX_SHARDS {
            return Err(format!("a list has 1 to {MAX_SHARDS} shards"));
        }
        let shards = listed.shard.into_iter().map(ListedShard::parse);
        let shards = shards.collect::<std::result::Result<Vec<_>, _>>()?;
        for (at, shard) in shards.iter().enumerate() {
            let same = shards[..at]
                .iter()
                .filter(|other| other.family == shard.family);
            for other in same {
                let (one, other_name) = (shard.name(), other.name());
                if (&other.address, &other.path) == (&shard.address, &shard.path) {
                    return Err(format!(
                        "shard {one} is listed twice for column family {:?}",
                        shard.family
                    ));
                }
                let have_ranges = [shard, other]
                    .iter()
                    .all(|shard| shard.range != KeyRange::default());
                if have_ranges && shard.range.overlaps(&other.range) {
                    return Err(format!(
                        "the key ranges of shards {other_name} and {one} of column family {:?} overlap",
                        shard.family
                    ));
                }
            }
        }
        Ok(Self {
            file: file.to_owned(),
            shards,
        })
    }

    /// The column families, each once.
    pub fn families(&self) -> Vec<String> {
        let families: BTreeSet<_> = self.shards.iter().map(|shard| &shard.family).collect();
        families.into_iter().cloned().collect()
    }

    /// The processes that have the shards.
    pub fn urls(&self, channels: &Channels) -> Vec<Url> {
        let urls = self
            .shards
            .iter()
            .map(|shard| shard.address.url(channels.are_secure()));
        urls.collect()
    }

    /// The shards that each process has.
    pub(crate) fn by_worker(&self, channels: &Channels) -> BTreeMap<Url, Vec<String>> {
        let mut by_worker: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for shard in &self.shards {
            let url = shard.address.url(channels.are_secure());
            let name = format!("{} of column family {:?}", shard.name(), shard.family);
            by_worker.entry(url).or_default().push(name);
        }
        by_worker
    }
}

impl ListedShard {
    fn parse(self) -> std::result::Result<Shard, String> {
        let (address, path) = self.url.split_once('/').ok_or_else(|| {
            format!(
                "the url of a shard is HOST:PORT/FOLDER, as in node1:7400/events, and not {:?}",
                self.url
            )
        })?;
        let address = address
            .parse()
            .map_err(|e| format!("shard {:?}: {e}", self.url))?;
        let key = |text: String| names::unescape(&text);
        let range = KeyRange {
            begin: self.from.map(key),
            end: self.to.map(key),
        };
        if matches!((&range.begin, &range.end), (Some(begin), Some(end)) if begin >= end) {
            return Err(format!(
                "shard {:?}: the key range ends before it begins",
                self.url
            ));
        }
        Ok(Shard {
            address,
            path: PathBuf::from(path),
            log_folder: self.wal_dir,
            family: self.family,
            range,
        })
    }
}

impl Shard {
    fn name(&self) -> String {
        format!("{}/{}", self.address, self.path.display())
    }
}

/// The tables of a list. Each statement reads every shard at a sequence number of its own.
#[derive(Debug)]
pub struct Shards {
    list: ShardList,
    folder: PathBuf,
    client: PinClient,
    merge_operators: MergeOperators,
}

impl Shards {
    /// The tables of a list. Their snapshots are taken on threads that may wait.
    pub fn new(
        list: ShardList,
        channels: Channels,
        merge_operators: MergeOperators,
        engine: &Arc<ScanEngine>,
    ) -> Self {
        let folder = list.file.parent().unwrap_or(Path::new("."));
        Self {
            folder: folder.to_owned(),
            client: PinClient::new(channels, engine),
            list,
            merge_operators,
        }
    }

    async fn remote(&self, shard: &Shard) -> Result<Remote> {
        let url = shard.address.url(self.client.channels.are_secure());
        let pin = PinRequest::Newest {
            location: DatabaseLocation {
                path: shard.path.clone(),
                log_folder: shard.log_folder.clone(),
            },
            family: shard.family.clone(),
            merge_operator: self.merge_operators.stated(&shard.family),
        };
        let of_kind = |kind, what: String| Error::new(kind, what).in_file(&shard.name());
        let failed = |what| of_kind(ErrorKind::Invalid, what);
        let asked = self.client.ask(&url, &pin).await;
        let (answer, connection) = asked.map_err(|e| {
            let kind = match e.find_root() {
                DataFusionError::IoError(_) => ErrorKind::Storage,
                _ => ErrorKind::Invalid,
            };
            of_kind(kind, e.find_root().message().into_owned())
        })?;
        let PinReply::Described(described) = answer else {
            return Err(failed(
                "its files change while they are opened: run the statement again".to_owned(),
            ));
        };
        if let Some(keys) = described
            .keys
            .as_ref()
            .filter(|keys| !shard.range.covers(keys))
        {
            return Err(failed(outside(shard, keys)));
        }
        Ok(Remote {
            url: url.to_string(),
            path: shard.path.clone(),
            log_folder: shard.log_folder.clone(),
            range: shard.range.clone(),
            described: *described,
            pinned: Arc::new(connection),
        })
    }
}

/// Refuses a database that is listed under two names, because its rows would be returned twice. Two entries are one database
/// if they have a file in common, as copies have, or the same folder: a database may have no file yet, or others by now. A
/// clone of a volume has the same folder as well, so two entries with ranges, which do not overlap, may have that.
///
/// # Errors
/// Invalid, with the names of both.
fn answers_once(family: &str, remotes: &[Remote]) -> Result<()> {
    let (mut files, mut databases) = (BTreeMap::new(), BTreeMap::new());
    for remote in remotes {
        let name = format!("{}{}", remote.url, remote.path.display());
        let described = &remote.described;
        let ids = described.version.files.iter().filter_map(|(_, _, id)| *id);
        let known = ids.filter_map(|id| files.insert(id, name.clone()));
        let known: Vec<_> = known.collect();
        let database = described.database.clone();
        let has_range = remote.range != KeyRange::default();
        let entry = (name.clone(), has_range);
        let same = database.and_then(|database| databases.insert(database, entry));
        let same = same.filter(|(_, other_has_range)| !(has_range && *other_has_range));
        let same = same.map(|(other, _)| other);
        let other = known.into_iter().chain(same).find(|other| *other != name);
        if let Some(other) = other {
            let what = format!(
                "shards {other} and {name} of column family {family:?} have the same files, so rows would come twice: list \
                 the database once"
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
    }
    Ok(())
}

/// Names a key that lies outside of a shard's range.
fn outside(shard: &Shard, keys: &KeyRange) -> String {
    let shown = |key: &[u8]| format!("\"{}\"", names::escape(key));
    let end = |key: &Option<Vec<u8>>, open: &str| key.as_deref().map_or(open.to_owned(), shown);
    let begin = keys.begin.as_deref().unwrap_or_default();
    let key = match shard.range.contains(begin) {
        false => begin,
        // The end is the largest key with a zero byte.
        true => {
            let end = keys.end.as_deref().unwrap_or_default();
            end.strip_suffix(&[0]).unwrap_or(end)
        }
    };
    format!(
        "column family {:?} has key {}, which lies outside of the shard's range from {} to {}: correct the list of shards, \
         or leave out the range",
        shard.family,
        shown(key),
        end(&shard.range.begin, "the first key"),
        end(&shard.range.end, "the last key"),
    )
}

impl Database for Shards {
    fn path(&self) -> &Path {
        &self.folder
    }

    fn has_files(&self) -> bool {
        false
    }

    fn families(&self) -> Result<Vec<String>> {
        Ok(self.list.families())
    }

    fn snapshot(&self, engine: &Arc<ScanEngine>) -> Result<Arc<Snapshot>> {
        let families = self.list.families();
        let families: Vec<_> = families.iter().map(String::as_str).collect();
        self.snapshot_of(engine, &families)
    }

    fn snapshot_of(&self, engine: &Arc<ScanEngine>, families: &[&str]) -> Result<Arc<Snapshot>> {
        let shards = &self.list.shards;
        let has = |family: &str| shards.iter().any(|shard| shard.family == family);
        if let Some(family) = families.iter().find(|family| !has(family)) {
            let what = format!("no shard of the list has a column family {family:?}");
            return Err(Error::declined(DeclineReason::Manifest, what));
        }
        let read = shards
            .iter()
            .filter(|shard| families.contains(&shard.family.as_str()));
        let read: Vec<_> = read.collect();
        let asked = read.iter().map(|shard| self.remote(shard));
        let threads =
            threads().map_err(|e| Error::new(ErrorKind::Storage, e.message().into_owned()))?;
        let mut remotes = threads.block_on(try_join_all(asked))?.into_iter();
        let mut of_families: BTreeMap<_, Vec<_>> = families
            .iter()
            .map(|&family| (family, Vec::new()))
            .collect();
        for shard in read {
            let parts = of_families.get_mut(shard.family.as_str());
            if let (Some(parts), Some(remote)) = (parts, remotes.next()) {
                parts.push(remote);
            }
        }
        for (family, remotes) in &of_families {
            answers_once(family, remotes)?;
        }
        let of_families = of_families.into_iter();
        let of_families = of_families
            .map(|(family, remotes)| FamilySnapshot::of_remotes(&self.folder, family, remotes));
        Ok(Arc::new(Snapshot::of_remotes(
            engine,
            &self.folder,
            of_families,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<ShardList, String> {
        ShardList::parse(text, Path::new("shards.toml"))
    }

    #[test]
    fn a_list_names_a_column_family_a_url_and_a_range_or_none() {
        let list = parse(
            "[[shard]]\nfamily = 'events'\nurl = 'node1:7400/a/db'\nto = 'm'\n\
             [[shard]]\nfamily = 'events'\nurl = 'node2:7400/db'\nfrom = 'm'\nto = '\\xff'\n\
             [[shard]]\nfamily = 'users'\nurl = 'node2:7400/db'\n",
        );
        let list = list.expect("a list");
        assert_eq!(list.families(), ["events", "users"]);
        assert_eq!(list.shards[0].path, Path::new("a/db"));
        assert_eq!(list.shards[1].range.begin.as_deref(), Some(&b"m"[..]));
        assert_eq!(list.shards[1].range.end.as_deref(), Some(&[0xff][..]));
        assert_eq!(list.shards[2].range, KeyRange::default());
    }

    #[test]
    fn a_wrong_list_is_refused_with_a_sentence() {
        let shard =
            |url: &str, rest: &str| format!("[[shard]]\nfamily = 'a'\nurl = '{url}'\n{rest}\n");
        let twice = shard("n:1/db", "") + &shard("n:1/db", "");
        let overlap = shard("n:1/db", "to = 'm'") + &shard("n:2/db", "from = 'k'");
        let backwards = shard("n:1/db", "from = 'm'\nto = 'k'");
        for (text, says) in [
            ("", "missing field `shard`"),
            ("shard = []", "1 to 4096 shards"),
            (shard("n:1", "").as_str(), "HOST:PORT/FOLDER"),
            (shard("n/db", "").as_str(), "HOST:PORT"),
            (shard("n:1/db", "port = 7").as_str(), "unknown field `port`"),
            (twice.as_str(), "is listed twice"),
            (
                overlap.as_str(),
                "shards n:1/db and n:2/db of column family \"a\" overlap",
            ),
            (backwards.as_str(), "ends before it begins"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(says), "{said}");
        }
        // One without a range is always read.
        parse(&(shard("n:1/db", "to = 'm'") + &shard("n:2/db", ""))).expect("a list");
    }
}
