//! Whose jobs come through a clone, and which of these databases have closed as far as that can be told.
//!
//! RocksDB tells that a database closes just before the database stops to schedule, but not which one closes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// For how long jobs of the databases that may be closing go back at once. RocksDB holds its mutex from the call
/// until it stops to pick compactions (`db_impl.cc:CancelAllBackgroundWork`), unless it has event listeners to tell. So
/// hardly any are still to come but those that it picked before and has not offered yet. A database that lives on
/// loses no more than the jobs of this time.
const CLOSING: Duration = Duration::from_millis(250);

/// The sessions of databases whose jobs come through one clone.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Jobs came since RocksDB last told that a database closes.
    at_work: BTreeSet<String>,
    /// Jobs came before that, and none since: one has closed, and the others may live on.
    in_doubt: BTreeSet<String>,
    /// Sessions one of which closes; until then, their jobs are left to RocksDB.
    closing: Option<(BTreeSet<String>, Instant)>,
}

impl Sessions {
    /// A job of a session comes at `now`; whether it may be done, since its database is not thought to close.
    pub fn job_comes(&mut self, session_id: &str, now: Instant) -> bool {
        let closes = |(sessions, until): &(BTreeSet<String>, Instant)| {
            sessions.contains(session_id) && now < *until
        };
        if self.closing.as_ref().is_some_and(closes) {
            return false;
        }
        self.in_doubt.remove(session_id);
        self.at_work.insert(session_id.to_owned());
        true
    }

    /// A database closes at `now`. Returns the sessions of which nothing need be kept: those that have had no job since
    /// another one closed, and the one at work if there is no other at work. Where there are more, most live on, and would have
    /// to read their MANIFEST from its start again.
    pub fn one_closes(&mut self, now: Instant) -> BTreeSet<String> {
        let at_work = std::mem::take(&mut self.at_work);
        let mut ended = std::mem::take(&mut self.in_doubt);
        let mut all: BTreeSet<_> = ended.union(&at_work).cloned().collect();
        if let Some((earlier, _)) = self.closing.take().filter(|(_, until)| now < *until) {
            all.extend(earlier);
        }
        self.closing = Some((all, now + CLOSING));
        match at_work.len() {
            0 | 1 => ended.extend(at_work),
            _ => self.in_doubt = at_work,
        }
        ended
    }

    /// Those of which something may be kept.
    pub fn into_kept(mut self) -> BTreeSet<String> {
        self.at_work.append(&mut self.in_doubt);
        self.at_work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn jobs_of_those_that_may_close_are_left_alone_for_a_while() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        assert!(sessions.job_comes("one", now) && sessions.job_comes("other", now));
        sessions.one_closes(now);
        assert!(!sessions.job_comes("one", now) && !sessions.job_comes("other", now));
        assert!(sessions.job_comes("third", now));
        // Whoever has had no job since may be the next to close.
        sessions.one_closes(now + CLOSING);
        assert!(!sessions.job_comes("other", now + CLOSING));
        assert!(sessions.job_comes("other", now + 2 * CLOSING));
    }

    #[test]
    fn a_database_that_lives_on_gets_its_next_compaction_done() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.job_comes("closes", now);
        sessions.job_comes("lives on", now);
        sessions.one_closes(now);
        assert!(sessions.job_comes("lives on", now + Duration::from_millis(300)));
    }

    #[test]
    fn of_several_that_close_one_after_the_other_no_more_jobs_are_taken() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        for id in ["one", "other", "third"] {
            sessions.job_comes(id, now);
        }
        (0..3).for_each(|_| drop(sessions.one_closes(now)));
        assert!(!sessions.job_comes("third", now));
    }

    #[test]
    fn what_several_keep_stays_until_one_has_had_no_job_when_the_next_closes() {
        let (mut sessions, mut now) = (Sessions::default(), Instant::now());
        for id in ["one", "other", "third"] {
            sessions.job_comes(id, now);
        }
        assert_eq!(sessions.one_closes(now), ids([]));
        now += CLOSING;
        assert!(sessions.job_comes("other", now) && sessions.job_comes("third", now));
        assert_eq!(sessions.one_closes(now), ids(["one"]));
        now += CLOSING;
        assert!(sessions.job_comes("third", now));
        assert_eq!(sessions.one_closes(now), ids(["other", "third"]));
        assert_eq!(sessions.one_closes(now), ids([]));
    }

    #[test]
    fn nothing_is_kept_of_one_that_closes_alone() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.job_comes("one", now);
        assert_eq!(sessions.one_closes(now), ids(["one"]));
        assert_eq!(sessions.into_kept(), ids([]));
    }

    #[test]
    fn all_that_is_kept_is_known_in_the_end() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.job_comes("one", now);
        sessions.job_comes("other", now);
        sessions.one_closes(now);
        sessions.job_comes("third", now);
        assert_eq!(sessions.into_kept(), ids(["one", "other", "third"]));
    }
}
