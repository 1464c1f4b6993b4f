//! The compaction of one column family after another.

use std::collections::BTreeSet;

use rockmill::{Service, Stats};
use rockmill_format::manifest::Tree;
use rockmill_format::names;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;

use super::database::{Database, Opening};
use super::decision::Decision;
use super::progress;
use super::refusal::Refusal;
use super::report::{Clock, Report, Times};
use super::task::{SelectedFamily, Task};
use crate::database_dir;

/// Outcome of a column family.
#[derive(Debug)]
pub enum Became {
    Compacted,
    /// Its files are those of a compaction, and its logs have no entries.
    CompactedAlready,
    /// No file has such keys.
    Empty,
    /// It was left alone for a reason of its own.
    LeftAlone,
    Failed(Failure),
    /// A signal came, or another one has failed.
    NotReached,
}

/// Result of a column family.
#[derive(Debug)]
pub struct Done {
    pub became: Became,
    pub times: Times,
    /// Counters before and after.
    pub stats: [Stats; 2],
}

/// Compacts the column families, and returns the report with the command's result.
///
/// # Errors
/// Those of opening the database. Errors of a column family, and a signal, are part of the command's result.
pub fn compact(
    task: &Task,
    decision: &Decision,
    service: &Service,
) -> Result<(Report, Result<(), Failure>), Failure> {
    let before = database_dir::read_tree(&task.dir)?;
    let mut done = Vec::new();
    if let Some(opening) = &decision.opening {
        // After an error, RocksDB does no more work. So the rest is tried again if the failure concerns one column
        // family.
        while done.len() < task.families.len() && goes_on(&done) {
            session(task, decision, opening, service, &before, &mut done)?;
        }
    }
    for family in &task.families[done.len()..] {
        let became = match decision.opening {
            Some(_) => Became::NotReached,
            None => without_work(task, family),
        };
        done.push(Done::without_work(became, service));
    }
    let after = database_dir::read_tree(&task.dir)?;
    let ended = end(task, decision, &done);
    let report = Report::new(task, service.stats(), &done, [&before, &after]);
    Ok((report, ended))
}

/// Whether further column families are compacted. Only damage concerns one of them alone.
fn goes_on(done: &[Done]) -> bool {
    let last = done.last().map(|done| &done.became);
    !signals::token().is_cancelled()
        && !matches!(last, Some(Became::Failed(failure)) if !matches!(failure, Failure::Data(_)))
}

/// Opens the database and compacts column families, up to the first failure, which it adds to `done`.
fn session(
    task: &Task,
    decision: &Decision,
    opening: &Opening,
    service: &Service,
    before: &Tree,
    done: &mut Vec<Done>,
) -> Result<(), Failure> {
    let database = opening.open(task, service)?;
    // Opening writes entries of large logs to level 0.
    let worked = database_dir::read_tree(&task.dir).map(|opened| {
        let names = task.families.iter().map(|family| family.name.as_str());
        let session = Session {
            task,
            decision,
            service,
            database: &database,
            trees: [before, &opened],
            unflushed: names.filter(|name| database.has_unflushed(name)).collect(),
        };
        session.compact(done);
    });
    let closed = database.close();
    worked.and(closed)
}

/// The open database.
struct Session<'a> {
    task: &'a Task,
    decision: &'a Decision,
    service: &'a Service,
    database: &'a Database,
    /// Trees before and after the database was opened.
    trees: [&'a Tree; 2],
    /// Column families with unflushed entries. With `atomic_flush`, the compaction of one flushes those of all.
    unflushed: BTreeSet<&'a str>,
}

impl Session<'_> {
    fn compact(&self, done: &mut Vec<Done>) {
        let (task, database) = (self.task, self.database);
        let all = task.families.len();
        let selected = task
            .families
            .iter()
            .filter(|family| self.decision.allows(&family.name) && family.has_work(task.force));
        let bytes = selected.map(|family| family.forecast.bytes()).sum();
        let mut is_stopped = false;
        let stop = || {
            if signals::token().is_cancelled() && !is_stopped {
                is_stopped = true;
                database.stop();
            }
        };
        progress::watch(self.service, bytes, stop, |tell| {
            while done.len() < all && !signals::token().is_cancelled() {
                let family = &task.families[done.len()];
                let name = names::escape(family.name.as_bytes());
                tell(format!("{name} ({} of {all})", done.len() + 1));
                let one = self.one(family);
                let has_failed = matches!(one.became, Became::Failed(_));
                // It has not failed if a signal has ended it.
                if has_failed && signals::token().is_cancelled() {
                    break;
                }
                done.push(one);
                if has_failed {
                    break;
                }
            }
        });
    }

    /// Compacts a column family, unless there is a refusal or it is compacted already.
    fn one(&self, family: &SelectedFamily) -> Done {
        if !self.decision.allows(&family.name) {
            return Done::without_work(Became::LeftAlone, self.service);
        }
        let files = self.trees.map(|tree| {
            let (_, family) = tree.by_name(family.name.as_bytes())?;
            Some(&family.levels)
        });
        let has_new = files[0] != files[1] || self.unflushed.contains(family.name.as_str());
        if !has_new && !family.has_work(self.task.force) {
            return Done::without_work(without_work(self.task, family), self.service);
        }
        let (clock, first) = (Clock::start(), self.service.stats());
        let compacted = self.database.compact(self.task, family);
        Done {
            became: compacted.map_or_else(Became::Failed, |()| Became::Compacted),
            times: clock.stop(),
            stats: [first, self.service.stats()],
        }
    }
}

/// Result of a column family that has nothing to compact. Its files may be damaged, or missing.
fn without_work(task: &Task, family: &SelectedFamily) -> Became {
    match family.damage(&task.dir) {
        Some(failure) => Became::Failed(failure),
        None if family.forecast.is_compacted => Became::CompactedAlready,
        None => Became::Empty,
    }
}

impl Done {
    fn without_work(became: Became, service: &Service) -> Self {
        Self {
            became,
            times: Times::default(),
            stats: [service.stats(), service.stats()],
        }
    }

    /// Whether no work is left.
    pub fn is_compacted(&self) -> bool {
        matches!(
            self.became,
            Became::Compacted | Became::CompactedAlready | Became::Empty
        )
    }
}

/// The command's result.
fn end(task: &Task, decision: &Decision, done: &[Done]) -> Result<(), Failure> {
    let compacted = done.iter().filter(|done| done.is_compacted()).count();
    let all = done.len();
    let left = done
        .iter()
        .any(|done| matches!(done.became, Became::NotReached));
    if left {
        signals::check(&match all {
            1 => format!(
                "column family {} is not compacted, the database is whole",
                names::escape(task.families[0].name.as_bytes())
            ),
            _ => {
                format!("{compacted} of {all} column families are compacted, the database is whole")
            }
        })?;
    }
    for done in done {
        if let Became::Failed(failure) = &done.became {
            return Err(failure.clone());
        }
    }
    match decision.refusals.is_empty() {
        true => Ok(()),
        false => Err(Refusal::failure(&task.dir, &decision.refusals)),
    }
}
