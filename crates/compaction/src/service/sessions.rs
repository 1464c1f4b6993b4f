//! Tracks the sessions whose jobs come through a clone, and which of their databases may have closed.
//!
//! RocksDB announces that a database closes just before it stops scheduling, but it does not say which database.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Period for which jobs of possibly closing databases are returned at once. RocksDB holds its mutex from the call
/// until it stops picking compactions (`db_impl.cc:CancelAllBackgroundWork`), unless it has event listeners to notify.
/// So almost all later jobs are ones that it had picked and not yet offered. A database that stays open loses only the
/// jobs of this period.
const CLOSING: Duration = Duration::from_millis(250);

/// Sessions of the databases whose jobs come through one clone.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions with a job since RocksDB last announced that a database closes.
    at_work: BTreeSet<String>,
    /// Sessions with a job before that announcement and none since: one has closed, and the others may be open.
    in_doubt: BTreeSet<String>,
    /// Sessions of which one closes, and the time until which their jobs are left to RocksDB.
    closing: Option<(BTreeSet<String>, Instant)>,
}

impl Sessions {
    /// Records a job of a session at `now`. Returns whether the job may be done, which is so if its database is not
    /// closing.
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

    /// Records at `now` that a database closes. Returns the sessions whose state can be dropped. These are the sessions
    /// without a job since an earlier announcement, and the active session if it is the only one. With several active
    /// sessions, most stay open, and dropping their state would make them read their MANIFEST from the start again.
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

    /// Whether a session has had a job, unless it has certainly ended since.
    pub fn contain(&self, session_id: &str) -> bool {
        self.at_work.contains(session_id) || self.in_doubt.contains(session_id)
    }

    /// Returns the sessions that may still have state.
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
        // A session without a job since then may be the next to close.
        sessions.one_closes(now + CLOSING);
        assert!(!sessions.job_comes("other", now + CLOSING));
        assert!(sessions.job_comes("other", now + 2 * CLOSING));
    }

    #[test]
    fn a_session_is_known_until_it_has_certainly_ended() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        assert!(!sessions.contain("one"));
        for id in ["one", "other"] {
            sessions.job_comes(id, now);
        }
        sessions.one_closes(now);
        assert!(sessions.contain("one") && sessions.contain("other"));
        assert!(sessions.job_comes("other", now + CLOSING));
        sessions.one_closes(now + CLOSING);
        assert!(!sessions.contain("one") && !sessions.contain("other"));
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
