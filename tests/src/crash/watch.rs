//! Storage that observes and counts each job's steps, and can stop at one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rockmill_core::Lock;
use rockmill_storage::{LocalStorage, Storage};
use rockmill_testkit::hooked::{Step, hooked};
use serde::Serialize;

use super::progress::{Gauges, Progress};
use super::writer::say;

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Point {
    /// The job's folder was created.
    Begun,
    /// A file was created.
    Created,
    /// Bytes were written to a file.
    Written,
    /// A file was synced.
    Synced,
    /// The job's folder was synced: all files wait for RocksDB.
    Staged,
    /// RocksDB has renamed the files and has not written the MANIFEST yet.
    Taken,
    /// The job's folder was removed. If RocksDB took the files, it writes the MANIFEST next.
    Removed,
    /// Some or all files of an earlier process were removed from the staging folder.
    Cleaned,
}

impl Point {
    /// The steps that every job takes, in order.
    pub const OF_A_JOB: [Self; 7] = [
        Self::Begun,
        Self::Created,
        Self::Written,
        Self::Synced,
        Self::Staged,
        Self::Taken,
        Self::Removed,
    ];

    /// All steps.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OF_A_JOB.into_iter().chain([Self::Cleaned])
    }

    /// Name in arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Created => "created",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Staged => "staged",
            Self::Taken => "taken",
            Self::Removed => "removed",
            Self::Cleaned => "cleaned",
        }
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().find(|point| point.name() == name);
        found.ok_or_else(|| format!("{name:?} is no point of a job"))
    }
}

/// The step to report, and perhaps to stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The step.
    pub point: Point,
    /// Number of such steps until then, including this one.
    pub nth: u64,
    /// Whether the thread that takes the step stops there permanently.
    pub holds: bool,
}

/// Line that is printed when the step is reached.
pub const REACHED: &str = "reached";

/// Observed state of a job.
#[derive(Debug, Default)]
struct Job {
    files: u64,
    is_staged: bool,
}

#[derive(Debug)]
struct Watch {
    progress: Arc<Progress>,
    gauges: Gauges,
    /// Jobs by staging folder.
    jobs: BTreeMap<PathBuf, Job>,
    trap: Option<Trap>,
}

impl Watch {
    fn show(&mut self) -> io::Result<()> {
        let jobs = self.jobs.values();
        self.gauges.computing = jobs.clone().filter(|job| !job.is_staged).count() as u64;
        self.gauges.installing = self.jobs.len() as u64 - self.gauges.computing;
        self.gauges.staged_files = jobs.map(|job| job.files).sum();
        self.progress.show(self.gauges)
    }

    /// Returns the trap if this step triggers it.
    fn traps(&mut self, point: Point) -> Option<Trap> {
        let trap = self.trap.as_mut().filter(|trap| trap.point == point)?;
        trap.nth -= 1;
        if trap.nth > 0 {
            return None;
        }
        self.trap.take()
    }
}

/// An observer of the system's storage. Clones share what it observed.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The database's folder; all others belong to jobs.
    database: PathBuf,
    watch: Arc<Lock<Watch>>,
}

impl Watched {
    /// Watches the jobs of the database in `database`.
    #[must_use]
    pub fn new(database: &Path, progress: Arc<Progress>, trap: Option<Trap>) -> Self {
        Self {
            database: database.to_owned(),
            watch: Arc::new(Lock::new(Watch {
                progress,
                gauges: Gauges::default(),
                jobs: BTreeMap::new(),
                trap,
            })),
        }
    }

    /// The system's storage, which calls the observer.
    #[must_use]
    pub fn storage(&self) -> Arc<dyn Storage> {
        let watched = self.clone();
        hooked(LocalStorage, move |path, step| watched.observe(path, &step))
    }

    fn observe(&self, path: &Path, step: &Step<'_>) -> io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        let is_database = path == self.database;
        match step {
            Step::FolderCreated => self.begun(path),
            Step::Created => self.step(Point::Created, folder, |job| job.files += 1),
            Step::Written => self.step(Point::Written, folder, |_| {}),
            Step::Synced => self.step(Point::Synced, folder, |_| {}),
            Step::FolderSynced if !is_database => {
                self.step(Point::Staged, path, |job| job.is_staged = true)
            }
            Step::SyncFolder if is_database => self.step(Point::Taken, path, |_| {}),
            Step::FolderRemoved => self.removed(path),
            _ => Ok(()),
        }
    }

    /// Changes gauges that do not concern jobs.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn note(&self, change: impl FnOnce(&mut Gauges)) -> io::Result<()> {
        let mut watch = self.watch.lock();
        change(&mut watch.gauges);
        watch.show()
    }

    /// Records a step of a job in `folder`.
    fn step(&self, point: Point, folder: &Path, change: impl FnOnce(&mut Job)) -> io::Result<()> {
        let mut watch = self.watch.lock();
        if let Some(job) = watch.jobs.get_mut(folder) {
            change(job);
        }
        watch.show()?;
        let trapped = watch.traps(point);
        drop(watch);
        spring(trapped)
    }

    fn begun(&self, folder: &Path) -> io::Result<()> {
        self.watch.lock().jobs.entry(folder.to_owned()).or_default();
        self.step(Point::Begun, folder, |_| {})
    }

    fn removed(&self, folder: &Path) -> io::Result<()> {
        let point = {
            let mut watch = self.watch.lock();
            let job = watch.jobs.remove(folder);
            watch.gauges.jobs_done += u64::from(job.as_ref().is_some_and(|job| job.is_staged));
            job.map_or(Point::Cleaned, |_| Point::Removed)
        };
        self.step(point, folder, |_| {})
    }
}

/// Reports a triggered trap, and stops there if it is to hold.
fn spring(trap: Option<Trap>) -> io::Result<()> {
    let Some(trap) = trap else {
        return Ok(());
    };
    say(REACHED)?;
    if !trap.holds {
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}
