//! Starts writing processes, kills them, and checks the remaining files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_core::Lock;

use super::campaign::Campaign;
use super::check::{Checker, remains};
use super::moment::Moment;
use super::process::Process;
use super::progress::Progress;
use super::script::{Model, Script};
use super::shape::FAMILIES;
use super::summary::Summary;
use super::writer::Arguments;

/// Number of kills of one database; the next database has another shape.
const KILLS_PER_DATABASE: u64 = 10;
/// After one kill in `UNCLEANED_EVERY`, the remaining files are kept for the next process. Half of those processes are
/// killed just after they have removed some of them, the others at other moments.
const UNCLEANED_EVERY: u32 = 5;

/// Kills the campaign's processes, in new databases under `directory`, and checks each database after each kill.
/// Everything except the machine's timing depends on the seed.
///
/// # Errors
///
/// The first condition that does not hold, with the events before it.
pub fn run(campaign: &Campaign, directory: &Path) -> Result<Summary, String> {
    let started = Instant::now();
    let kills = Kills {
        campaign,
        directory,
        summary: Lock::new(Summary {
            seed: campaign.seed,
            device: campaign.device.to_string(),
            ..Summary::default()
        }),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..campaign.at_once)
            .map(|_| scope.spawn(|| kills.go_on()))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        // A panic is an error in the test.
        let ended: Vec<_> = ended.map(|ended| ended.expect("no panic")).collect();
        ended.into_iter().collect::<Result<(), String>>()
    })?;
    let mut summary = kills.summary.into_inner();
    summary.elapsed_s = started.elapsed().as_secs_f64();
    Ok(summary)
}

/// State that several lives share.
struct Kills<'a> {
    campaign: &'a Campaign,
    directory: &'a Path,
    summary: Lock<Summary>,
}

impl Kills<'_> {
    /// Runs one life after another until there are enough kills, or a condition does not hold.
    fn go_on(&self) -> Result<(), String> {
        while let Some((seed, kills)) = self.next() {
            Life::new(self, seed).live(kills)?;
        }
        Ok(())
    }

    /// Returns seed and number of kills of the next database.
    fn next(&self) -> Option<(u64, u64)> {
        let mut summary = self.summary.lock();
        let number = summary.databases;
        let left = (self.campaign.kills).saturating_sub(number * KILLS_PER_DATABASE);
        if left == 0 || summary.failures > 0 {
            return None;
        }
        summary.databases += 1;
        Some((summary.seed + number, left.min(KILLS_PER_DATABASE)))
    }
}

/// A database from its first process to its last.
struct Life<'a> {
    kills: &'a Kills<'a>,
    seed: u64,
    database: PathBuf,
    progress: PathBuf,
    model: Model,
    rng: StdRng,
    /// Shortest time in which a process opened database and device, once known.
    opening: Option<Duration>,
    /// Whether the last process left files in the staging folder that are still there.
    leftovers: bool,
}

impl<'a> Life<'a> {
    fn new(kills: &'a Kills<'a>, seed: u64) -> Self {
        Self {
            kills,
            seed,
            database: kills.directory.join(seed.to_string()),
            progress: kills.directory.join(format!("{seed}.progress")),
            model: Model::new(Script::new(seed)),
            rng: StdRng::seed_from_u64(seed),
            opening: None,
            leftovers: false,
        }
    }

    fn live(mut self, kills: u64) -> Result<(), String> {
        for kill in 1..=kills {
            let moment = Moment::random(&mut self.rng, self.leftovers);
            let cleans = kill == kills || !self.rng.random_ratio(1, UNCLEANED_EVERY);
            println!("seed {}, kill {kill}: {moment:?}", self.seed);
            self.kill(moment)
                .and_then(|()| match cleans {
                    true => self.restart(),
                    false => Ok(()),
                })
                .map_err(|e| {
                    let (database, mut summary) =
                        (self.database.display(), self.kills.summary.lock());
                    summary.failures += 1;
                    format!(
                        "seed {}, kill {kill}, {moment:?}, {database}: {e}\n{summary}",
                        self.seed
                    )
                })?;
        }
        // Only the database of a failure is kept.
        let removed = std::fs::remove_dir_all(&self.database);
        removed.map_err(|e| format!("{}: {e}", self.database.display()))
    }

    /// Starts a process, kills it at `moment`, and checks how RocksDB recovers the database.
    fn kill(&mut self, moment: Moment) -> Result<(), String> {
        let failed = |what: &str, e: std::io::Error| format!("{what}: {e}");
        let before = *self.model.counts();
        let progress = Progress::create(&self.progress, &before)
            .map_err(|e| failed("make the file of progress", e))?;
        let campaign = self.kills.campaign;
        let arguments = Arguments {
            database: self.database.clone(),
            progress: self.progress.clone(),
            seed: self.seed,
            device: campaign.device,
            trap: moment.trap(),
        };
        let mut process = Process::start(&campaign.program, &arguments)?;
        let reached = process.await_moment(moment, self.opening.unwrap_or_default())?;
        self.opening = self.opening.into_iter().chain(process.opening).min();
        process.kill()?;
        let gauges = progress.gauges().map_err(|e| failed("read progress", e))?;
        let acknowledged = progress.acknowledged();
        let acknowledged = acknowledged.map_err(|e| failed("read progress", e))?;
        let remains = remains(&self.database)?;
        self.leftovers = remains.folders > 0;
        self.kills.summary.lock().killed(gauges, remains);
        if let (Some(trap), true) = (moment.trap(), reached) {
            self.kills.summary.lock().trapped(trap);
        }
        let checker = Checker::new(&self.database, self.seed, campaign.device);
        let files = checker.recovered(&mut self.model, &acknowledged)?;
        let mut summary = self.kills.summary.lock();
        summary.verified(&before, &acknowledged, self.model.counts(), files);
        Ok(())
    }

    /// Restarts a service, and checks that it cleans up and works.
    fn restart(&mut self) -> Result<(), String> {
        let family = self.rng.random_range(0..FAMILIES.len());
        let device = self.kills.campaign.device;
        let checker = Checker::new(&self.database, self.seed, device);
        let restarted = checker.restarted(&mut self.model, family)?;
        self.kills.summary.lock().restarted(restarted);
        self.leftovers = false;
        Ok(())
    }
}
