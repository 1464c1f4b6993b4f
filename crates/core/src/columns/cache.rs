//! The kept groups and columns of all tables, and which of them stay.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Column, Expression, GROUP_BYTES, Group, TableIdentity};
use crate::Lock;

/// Groups and columns of any number of tables, within a number of bytes, which is 0 at first.
///
/// A scan that reads more than fits uses every group once before it comes back to the first one. If the group that was
/// not used for the longest time made room, the one that is needed next would always go. So a group stays while scans
/// have read less than twice the limit since its last use, and a new one is not kept if no other may go.
#[derive(Debug)]
pub struct ColumnCache {
    pub(super) group_bytes: u64,
    state: Lock<State>,
}

impl Default for ColumnCache {
    fn default() -> Self {
        Self::with_groups_of(GROUP_BYTES)
    }
}

/// See [`ColumnCache`].
const ROUNDS: u64 = 2;

/// Bytes of an entry of a map, with its key.
const ENTRY_BYTES: u64 = 128;

/// A table, and the number of one of its groups.
type Key = (TableIdentity, u64);

#[derive(Debug, Default)]
struct State {
    limit: u64,
    groups: HashMap<Key, CachedGroup>,
    /// All groups, by the clock at their last use.
    by_use: BTreeSet<(u64, Key)>,
    accounts: Accounts,
    /// The counts that the process's metrics recorder has received.
    told: Accounts,
    /// Bytes that scans have found or added so far.
    clock: u64,
    /// The clock when columns without use were last looked for.
    searched: u64,
    names: HashMap<Expression, ColumnName>,
    /// Instructions of these names.
    name_instructions: usize,
    /// Number of names so far. A name is not used again.
    named: u64,
}

/// Names an [`Expression`] in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnName(u64);

/// Maximum instructions of all names. Statements may have any number of them.
const MAX_NAME_INSTRUCTIONS: usize = 1 << 18;

/// A group with the columns that scans have used.
#[derive(Debug)]
struct CachedGroup {
    group: Arc<Group>,
    columns: HashMap<ColumnName, CachedColumn>,
    bytes: u64,
    /// The clock at its last use.
    used: u64,
}

#[derive(Debug)]
struct CachedColumn {
    column: Arc<Column>,
    /// The clock at its last use.
    used: u64,
}

/// A group, and those of some columns that are kept.
pub type CachedColumns = (Arc<Group>, Vec<Option<Arc<Column>>>);

/// Counts of a cache.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Accounts {
    /// Bytes that are kept now.
    pub bytes: u64,
    /// Bytes that scans have found.
    pub hit_bytes: u64,
    /// Bytes that scans have parsed.
    pub miss_bytes: u64,
    /// Bytes that have made room for others, or for a smaller limit.
    pub evicted_bytes: u64,
    /// Groups whose bytes were not those that were kept.
    pub mismatches: u64,
}

impl Accounts {
    /// The counts that the process's metrics recorder has received, and those that it receives now: these, without the bytes
    /// of a cache that does not stay. `told` has the former, and then the latter.
    pub fn tell(self, told: &mut Self, stays: bool) -> [Self; 2] {
        let bytes = if stays { self.bytes } else { 0 };
        let now = Self { bytes, ..self };
        [std::mem::replace(told, now), now]
    }
}

impl ColumnCache {
    /// A cache whose groups have other sizes, for tests.
    #[doc(hidden)]
    pub fn with_groups_of(group_bytes: u64) -> Self {
        Self {
            group_bytes,
            state: Lock::default(),
        }
    }

    /// Changes the number of bytes to keep. 0 keeps none, and scans then read tables as without a cache.
    pub fn set_limit(&self, limit: u64) {
        let mut state = self.state.lock();
        state.limit = limit;
        while state.accounts.bytes > limit
            && let Some((_, key)) = state.by_use.first().copied()
        {
            state.evict(&key);
        }
        if limit == 0 {
            state.forget_names();
        }
    }

    /// Whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.state.lock().limit > 0
    }

    /// Its counts.
    pub fn accounts(&self) -> Accounts {
        self.state.lock().accounts
    }

    /// The counts that the process's metrics recorder knows, and those that it is to know; see [`Accounts::tell`].
    pub fn tell(&self, stays: bool) -> [Accounts; 2] {
        let state = &mut *self.state.lock();
        state.accounts.tell(&mut state.told, stays)
    }

    /// The names of expressions.
    pub fn names(&self, expressions: &[Expression]) -> Vec<ColumnName> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.name_instructions > MAX_NAME_INSTRUCTIONS {
            // Nothing uses the columns with these names any more, so they make room for others.
            state.forget_names();
        }
        let name = |expression: &Expression| {
            let known = state.names.entry(Arc::clone(expression));
            *known.or_insert_with(|| {
                state.name_instructions += expression.len();
                state.named += 1;
                ColumnName(state.named)
            })
        };
        expressions.iter().map(name).collect()
    }

    /// A group, with those of some columns that are kept.
    pub fn get(
        &self,
        table: TableIdentity,
        group: u64,
        columns: &[ColumnName],
    ) -> Option<CachedColumns> {
        let state = self.state.lock();
        let kept = state.groups.get(&(table, group))?;
        let columns: Vec<_> = columns
            .iter()
            .map(|name| Some(Arc::clone(&kept.columns.get(name)?.column)))
            .collect();
        Some((Arc::clone(&kept.group), columns))
    }

    /// Notes that a scan uses `bytes` of a group and some columns: it has found all that it wants, and it is sound.
    pub fn used(&self, table: TableIdentity, group: u64, columns: &[ColumnName], bytes: u64) {
        let mut state = self.state.lock();
        state.accounts.hit_bytes += bytes;
        state.clock += bytes;
        state.mark_used(&(table, group), columns);
    }

    /// Keeps a group and columns that were parsed, if there is room.
    pub fn put(
        &self,
        table: TableIdentity,
        number: u64,
        group: &Arc<Group>,
        columns: &[(ColumnName, Arc<Column>)],
    ) {
        let bytes_of = |(_, column): &(ColumnName, Arc<Column>)| column.bytes() + ENTRY_BYTES;
        let parsed: u64 = columns.iter().map(|(_, column)| column.bytes()).sum();
        let mut state = self.state.lock();
        state.accounts.miss_bytes += parsed;
        state.clock += parsed;
        let key = (table, number);
        let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
        // Those that are kept stay, since no room is made for them.
        state.mark_used(&key, &names);
        let kept = state.groups.get(&key);
        let is_new = |(name, _): &&(ColumnName, Arc<Column>)| {
            kept.is_none_or(|kept| !kept.columns.contains_key(name))
        };
        let mut more: u64 = columns.iter().filter(is_new).map(bytes_of).sum();
        if kept.is_none() {
            more += group.bytes() + ENTRY_BYTES;
        }
        if !state.has_room(more, &key) {
            return;
        }
        let state = &mut *state;
        let kept = match state.groups.entry(key) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(free) => {
                let bytes = group.bytes() + ENTRY_BYTES;
                state.accounts.bytes += bytes;
                free.insert(CachedGroup {
                    group: Arc::clone(group),
                    columns: HashMap::new(),
                    bytes,
                    used: 0,
                })
            }
        };
        for parsed @ (name, column) in columns {
            if let Entry::Vacant(free) = kept.columns.entry(*name) {
                let column = Arc::clone(column);
                free.insert(CachedColumn { column, used: 0 });
                kept.bytes += bytes_of(parsed);
                state.accounts.bytes += bytes_of(parsed);
            }
        }
        state.mark_used(&key, &names);
    }

    /// Forgets a group whose bytes are not those that were kept.
    pub fn mismatch(&self, table: TableIdentity, group: u64) {
        let mut state = self.state.lock();
        state.accounts.mismatches += 1;
        state.evict(&(table, group));
    }

    /// Inverts a bit of each column of each group, as faulty memory would. Returns the number of columns.
    #[doc(hidden)]
    pub fn flip(&self, bit: usize) -> usize {
        let mut flipped = 0;
        for kept in self.state.lock().groups.values_mut() {
            for kept in kept.columns.values_mut() {
                let mut other = Column::clone(&kept.column);
                other.flip(bit);
                kept.column = Arc::new(other);
                flipped += 1;
            }
        }
        flipped
    }

    /// Inverts a bit of the keys and of the tags of each group.
    #[doc(hidden)]
    pub fn flip_keys(&self, bit: usize) -> usize {
        let mut flipped = 0;
        for kept in self.state.lock().groups.values_mut() {
            let mut other = Group {
                keys: kept.group.keys.clone(),
                tags: kept.group.tags.clone(),
                ..*kept.group
            };
            other.keys.flip(bit);
            kept.group = Arc::new(other);
            flipped += 1;
        }
        flipped
    }
}

impl State {
    fn forget_names(&mut self) {
        self.names.clear();
        self.name_instructions = 0;
    }

    fn mark_used(&mut self, key: &Key, columns: &[ColumnName]) {
        if let Some(kept) = self.groups.get_mut(key) {
            for name in columns {
                if let Some(column) = kept.columns.get_mut(name) {
                    column.used = self.clock;
                }
            }
            self.by_use.remove(&(kept.used, *key));
            kept.used = self.clock;
            self.by_use.insert((kept.used, *key));
        }
    }

    fn evict(&mut self, key: &Key) {
        if let Some(kept) = self.groups.remove(key) {
            self.by_use.remove(&(kept.used, *key));
            self.accounts.bytes -= kept.bytes;
            self.accounts.evicted_bytes += kept.bytes;
        }
    }

    /// Makes room for more bytes of a group, if others may go.
    fn has_room(&mut self, bytes: u64, of: &Key) -> bool {
        if bytes > self.limit {
            return false;
        }
        while self.accounts.bytes + bytes > self.limit {
            let mut others = self.by_use.iter().filter(|(_, key)| key != of);
            match others.next().copied() {
                Some((used, key)) if self.is_old(used) => self.evict(&key),
                _ if self.clock - self.searched >= self.limit => self.evict_columns(),
                _ => return false,
            }
        }
        true
    }

    fn is_old(&self, used: u64) -> bool {
        self.clock - used >= self.limit.saturating_mul(ROUNDS)
    }

    /// Evicts the old columns of groups that are used.
    fn evict_columns(&mut self) {
        self.searched = self.clock;
        let mut groups = std::mem::take(&mut self.groups);
        for kept in groups.values_mut() {
            let mut freed = 0;
            kept.columns.retain(|_, kept| {
                let is_old = self.is_old(kept.used);
                freed += u64::from(is_old) * (kept.column.bytes() + ENTRY_BYTES);
                !is_old
            });
            kept.bytes -= freed;
            self.accounts.bytes -= freed;
            self.accounts.evicted_bytes += freed;
        }
        self.groups = groups;
    }
}
