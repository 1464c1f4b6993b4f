//! Summary of many kills.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::check::{Remains, Restarted};
use super::progress::Gauges;
use super::script::WRITERS;
use super::watch::{Point, Trap};
use crate::device::Subcompactions;

/// Counts over all kills.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// First seed.
    pub seed: u64,
    /// Device on which processes compacted, as named in settings.
    pub device: String,
    /// Number of killed processes.
    pub kills: u64,
    /// Number of databases that they wrote to, one after another or in parallel.
    pub databases: u64,
    /// Kills by the activity of the process; one kill may count for several.
    pub moments: Moments,
    /// Kills just after a job had taken this step.
    pub after_step: BTreeMap<Point, u64>,
    /// Kills among these with the job's thread stopped at the step.
    pub held_at_step: u64,
    /// Jobs' folders that killed processes left.
    pub folders_left: u64,
    /// Files in these folders.
    pub staged_files_left: u64,
    /// SST files that killed processes left and the MANIFEST did not name.
    pub unlisted_files_left: u64,
    /// Jobs that killed processes finished.
    pub jobs_done: u64,
    /// Subcompactions of finished jobs on the CPU, in killed processes and after restarts.
    pub cpu_subcompactions: u64,
    /// The same on the device.
    pub device_subcompactions: u64,
    /// Subcompactions at which the device failed.
    pub redone_subcompactions: u64,
    /// Snapshots that were read in killed processes.
    pub snapshots_read: u64,
    /// Batches that were acknowledged and found again.
    pub batches_acknowledged: u64,
    /// Batches that were found and not acknowledged.
    pub batches_unacknowledged: u64,
    /// Successful checks of a database's content, opened by RocksDB alone.
    pub databases_verified: u64,
    /// Successful restarts of a service, with cleanup and further work.
    pub restarts_verified: u64,
    /// SST files read for these checks.
    pub sst_files_verified: u64,
    /// Number of failed checks.
    pub failures: u64,
    /// Seconds from the first start to the last check.
    pub elapsed_s: f64,
}

/// Kills by the activity of the process.
#[derive(Debug, Default, Serialize)]
pub struct Moments {
    /// Opening database or device.
    pub opening: u64,
    /// Computing a job.
    pub job_running: u64,
    /// Files in a staging folder.
    pub files_staged: u64,
    /// A job's files are durable and its folder still exists: it is about to be reported, or RocksDB installs the
    /// files.
    pub installing: u64,
    /// None of these.
    pub idle: u64,
}

impl Summary {
    /// Adds a kill with the last activity of the process and its remaining files.
    pub fn killed(&mut self, gauges: Gauges, remains: Remains) {
        let moments = &mut self.moments;
        moments.opening += u64::from(gauges.open == 0);
        moments.job_running += u64::from(gauges.computing > 0);
        moments.files_staged += u64::from(remains.staged_files > 0);
        moments.installing += u64::from(gauges.installing > 0);
        let idle = gauges.open > 0 && gauges.computing + gauges.installing == 0;
        moments.idle += u64::from(idle);
        self.kills += 1;
        self.folders_left += remains.folders;
        self.staged_files_left += remains.staged_files;
        self.unlisted_files_left += remains.unlisted_files;
        self.jobs_done += gauges.jobs_done;
        self.subcompactiond(gauges.subcompactions);
        self.snapshots_read += gauges.snapshots_read;
    }

    fn subcompactiond(&mut self, subcompactions: Subcompactions) {
        self.cpu_subcompactions += subcompactions.cpu;
        self.device_subcompactions += subcompactions.device;
        self.redone_subcompactions += subcompactions.redone;
    }

    /// Adds a kill that came just after this step.
    pub fn trapped(&mut self, trap: Trap) {
        *self.after_step.entry(trap.point).or_default() += 1;
        self.held_at_step += u64::from(trap.holds);
    }

    /// Adds a successful restart.
    pub fn restarted(&mut self, restarted: Restarted) {
        self.restarts_verified += 1;
        self.sst_files_verified += restarted.files;
        self.subcompactiond(restarted.subcompactions);
    }

    /// Adds a successful check of a database. The arguments are the numbers of the last batches before the process, the
    /// acknowledged ones, those found, and the number of SST files read.
    pub fn verified(
        &mut self,
        before: &[u64],
        acknowledged: &[u64; WRITERS],
        found: &[u64],
        files: u64,
    ) {
        self.databases_verified += 1;
        self.sst_files_verified += files;
        for ((before, acknowledged), found) in before.iter().zip(acknowledged).zip(found) {
            self.batches_acknowledged += acknowledged - before;
            self.batches_unacknowledged += found - acknowledged;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moments {
            opening,
            job_running,
            files_staged,
            installing,
            idle,
        } = self.moments;
        writeln!(
            f,
            "{} kills of {} databases: {opening} opening, {job_running} with a job running, \
             {files_staged} with files staged, {installing} installing, {idle} idle",
            self.kills, self.databases
        )?;
        writeln!(
            f,
            "just after a job's step: {:?}, {} of them held there",
            self.after_step, self.held_at_step
        )?;
        writeln!(
            f,
            "left: {} folders with {} files, {} unlisted files",
            self.folders_left, self.staged_files_left, self.unlisted_files_left
        )?;
        writeln!(
            f,
            "compacted with {}: {} subcompactions, and {} by the CPU, {} of them after the device had failed",
            self.device,
            self.device_subcompactions,
            self.cpu_subcompactions,
            self.redone_subcompactions
        )?;
        write!(
            f,
            "{} jobs done, {} batches acknowledged and found, {} databases, {} restarts and {} SST files \
             verified, {} failures, {:.1} s",
            self.jobs_done,
            self.batches_acknowledged,
            self.databases_verified,
            self.restarts_verified,
            self.sst_files_verified,
            self.failures,
            self.elapsed_s
        )
    }
}
