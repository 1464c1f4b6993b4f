//! A series of kills as set by environment variables, and a check that it tested what it should.

use std::path::{Path, PathBuf};

use rockmill::DeviceList;

use super::kill;
use super::summary::Summary;
use super::watch::Point;
use crate::{device, seed};

const DEFAULT_KILLS: u64 = 15;
/// Number of kills with which every kind of moment occurs.
const ENOUGH_KILLS: u64 = 100;

/// Parameters of a series of kills.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Path of the built `src/bin/crash.rs`.
    pub program: PathBuf,
    /// Device on which the processes compact.
    pub device: DeviceList,
    /// Seed of the first database; each further one increments it.
    pub seed: u64,
    /// Number of processes to kill.
    pub kills: u64,
    /// Number of databases in parallel, each with one process.
    pub at_once: u64,
    /// File for the results.
    pub json: Option<PathBuf>,
}

impl Campaign {
    /// Reads the environment: `ROCKMILL_CASES` kills from `ROCKMILL_SEED` on, `ROCKMILL_AT_ONCE` processes in parallel,
    /// on `ROCKMILL_TEST_DEVICE`, with results in the file `ROCKMILL_JSON`.
    ///
    /// # Errors
    ///
    /// The error in the device's name.
    pub fn from_environment(program: &Path) -> Result<Self, String> {
        Ok(Self {
            program: program.to_owned(),
            device: device::tested()?,
            seed: seed::first_seed(),
            kills: seed::cases(DEFAULT_KILLS),
            at_once: seed::at_once(),
            json: std::env::var_os("ROCKMILL_JSON").map(PathBuf::from),
        })
    }

    /// Kills processes, in a temporary folder that is kept after a failure, and reports the results.
    ///
    /// # Errors
    ///
    /// The condition that does not hold, or the kind of kill that did not occur.
    pub fn run(&self) -> Result<(), String> {
        println!(
            "ROCKMILL_SEED={} ROCKMILL_CASES={} ROCKMILL_AT_ONCE={} ROCKMILL_TEST_DEVICE={}",
            self.seed, self.kills, self.at_once, self.device
        );
        let directory = tempfile::tempdir().map_err(|e| format!("a temporary folder: {e}"))?;
        let summary = match kill::run(self, directory.path()) {
            Ok(summary) => summary,
            Err(error) => return Err(format!("{error}\nkept in {}", directory.keep().display())),
        };
        println!("{summary}");
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(&summary).expect("a plain value");
            std::fs::write(path, json + "\n")
                .map_err(|e| format!("write {}: {e}", path.display()))?;
        }
        self.check(&summary)
            .map_err(|error| format!("{error}\n{summary}"))
    }

    /// Checks that the kills covered what they should.
    fn check(&self, summary: &Summary) -> Result<(), String> {
        let verified = summary.databases_verified;
        if verified != self.kills {
            return Err(format!("{} kills, {verified} verified", self.kills));
        }
        if summary.jobs_done == 0 || summary.batches_acknowledged == 0 {
            return Err("no job was done, or nothing was written".to_owned());
        }
        if !self.device.is_cpu_alone() && summary.device_subcompactions == 0 {
            return Err(format!("{} did no subcompaction", self.device));
        }
        if self.kills < ENOUGH_KILLS {
            return Ok(());
        }
        let moments = &summary.moments;
        let hit = [
            moments.opening,
            moments.job_running,
            moments.files_staged,
            moments.installing,
        ];
        if hit.contains(&0) {
            return Err("some moment was never met".to_owned());
        }
        match Point::all().find(|point| !summary.after_step.contains_key(point)) {
            Some(point) => Err(format!("no kill came after a job's step {point:?}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::summary::Moments;

    #[test]
    fn a_device_that_did_nothing_was_not_tested() {
        let mut campaign = Campaign {
            program: PathBuf::new(),
            device: DeviceList::default(),
            seed: 1,
            kills: 1,
            at_once: 1,
            json: None,
        };
        let mut summary = Summary {
            databases_verified: 1,
            jobs_done: 1,
            batches_acknowledged: 1,
            cpu_subcompactions: 1,
            ..Summary::default()
        };
        assert_eq!(campaign.check(&summary), Ok(()));
        campaign.device = device::named("cuda:0").expect("a device");
        let why = campaign.check(&summary).expect_err("it did nothing");
        assert_eq!(why, "cuda:0 did no subcompaction");
        summary.device_subcompactions = 1;
        assert_eq!(campaign.check(&summary), Ok(()));
    }

    #[test]
    fn many_kills_come_at_every_moment() {
        let campaign = Campaign {
            program: PathBuf::new(),
            device: DeviceList::default(),
            seed: 1,
            kills: ENOUGH_KILLS,
            at_once: 1,
            json: None,
        };
        let all = || Summary {
            databases_verified: ENOUGH_KILLS,
            jobs_done: 1,
            batches_acknowledged: 1,
            moments: Moments {
                opening: 1,
                job_running: 1,
                files_staged: 1,
                installing: 1,
                idle: 0,
            },
            after_step: Point::all().map(|point| (point, 1)).collect(),
            ..Summary::default()
        };
        assert_eq!(campaign.check(&all()), Ok(()));
        let mut summary = all();
        summary.moments.installing = 0;
        let why = campaign.check(&summary).expect_err("a moment is missing");
        assert_eq!(why, "some moment was never met");
        let mut summary = all();
        let (point, _) = summary.after_step.pop_first().expect("there are steps");
        let why = campaign.check(&summary).expect_err("a step is missing");
        assert_eq!(why, format!("no kill came after a job's step {point:?}"));
    }
}
