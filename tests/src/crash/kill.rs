//! Starts a writing process, kills it, and looks at what is left.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::check::{Checker, remains};
use super::progress::Progress;
use super::script::{Model, Script};
use super::shape::FAMILIES;
use super::summary::Summary;
use super::watch::{Point, Trap};
use super::writer::Arguments;

/// Kills in the life of a database; the next one has another shape.
const KILLS_PER_DATABASE: u64 = 10;
/// One kill in so many comes at any time, the others at a step of a job.
const ANY_TIME_EVERY: u32 = 3;
/// The last of such times.
const LATEST: Duration = Duration::from_millis(600);
/// The longest time from a step to the kill.
const LONGEST_DELAY: Duration = Duration::from_millis(20);
/// Each job takes every step; of steps that it takes for each file there are more.
const MOST_JOB_STEPS: u64 = 12;
const MOST_FILE_STEPS: u64 = 60;
/// A step that has not come by then will not come.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// `kill -9`.
const SIGKILL: i32 = 9;
/// After one kill in so many the next process finds what the killed one left, and is killed as often
/// just after it removed some of that as at other moments.
const UNCLEANED_EVERY: u32 = 5;

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after it was started.
    Time(Duration),
    /// So long after a step.
    Step(Trap, Duration),
}

impl Moment {
    /// `finds_leftovers` says whether the process to be killed has something to remove.
    fn random(rng: &mut StdRng, finds_leftovers: bool) -> Self {
        let cleans = finds_leftovers && rng.random();
        if !cleans && rng.random_ratio(1, ANY_TIME_EVERY) {
            return Self::Time(LATEST.mul_f64(rng.random()));
        }
        let point = match cleans {
            true => Point::Cleaned,
            false => *Point::OF_A_JOB.choose(rng).expect("not empty"),
        };
        let most = match point {
            Point::Created | Point::Written | Point::Synced => MOST_FILE_STEPS,
            Point::Begun | Point::Staged | Point::Taken | Point::Removed => MOST_JOB_STEPS,
            Point::Cleaned => 1,
        };
        let trap = Trap {
            point,
            nth: rng.random_range(1..=most),
            holds: rng.random(),
        };
        // As often below a millisecond as above it.
        let delay = match rng.random_range(0..3) {
            0 => Duration::ZERO,
            1 => LONGEST_DELAY.mul_f64(rng.random::<f64>() / 20.0),
            _ => LONGEST_DELAY.mul_f64(rng.random()),
        };
        Self::Step(trap, delay)
    }

    fn trap(self) -> Option<Trap> {
        match self {
            Self::Time(_) => None,
            Self::Step(trap, _) => Some(trap),
        }
    }
}

/// Kills `kills` processes that run `program`, in new databases under `directory`, and checks each database
/// after each. Everything is drawn from `seed` on; only the machine's timing is not.
///
/// # Errors
///
/// The first thing that does not hold, with what came before it.
pub fn run(program: &Path, directory: &Path, seed: u64, kills: u64) -> Result<Summary, String> {
    let started = Instant::now();
    let mut summary = Summary {
        seed,
        ..Summary::default()
    };
    while summary.kills < kills {
        let life = Life::new(program, directory, seed + summary.databases);
        summary.databases += 1;
        let in_this_life = KILLS_PER_DATABASE.min(kills - summary.kills);
        life.live(in_this_life, &mut summary)?;
    }
    summary.elapsed_s = started.elapsed().as_secs_f64();
    Ok(summary)
}

/// A database from its first process to its last.
struct Life<'a> {
    program: &'a Path,
    seed: u64,
    database: PathBuf,
    progress: PathBuf,
    model: Model,
    rng: StdRng,
    /// Whether the last process left something in the staging folder that nobody has removed.
    leftovers: bool,
}

impl<'a> Life<'a> {
    fn new(program: &'a Path, directory: &Path, seed: u64) -> Self {
        Self {
            program,
            seed,
            database: directory.join(seed.to_string()),
            progress: directory.join(format!("{seed}.progress")),
            model: Model::new(Script::new(seed)),
            rng: StdRng::seed_from_u64(seed),
            leftovers: false,
        }
    }

    fn live(mut self, kills: u64, summary: &mut Summary) -> Result<(), String> {
        for kill in 1..=kills {
            let moment = Moment::random(&mut self.rng, self.leftovers);
            let cleans = kill == kills || !self.rng.random_ratio(1, UNCLEANED_EVERY);
            println!("seed {}, kill {kill}: {moment:?}", self.seed);
            self.kill(moment, summary)
                .and_then(|()| match cleans {
                    true => self.restart(summary),
                    false => Ok(()),
                })
                .map_err(|e| {
                    let database = self.database.display();
                    format!(
                        "seed {}, kill {kill}, {moment:?}, {database}: {e}\n{summary}",
                        self.seed
                    )
                })?;
        }
        // Only the database at hand is of use to whoever looks for a failure.
        let removed = std::fs::remove_dir_all(&self.database);
        removed.map_err(|e| format!("{}: {e}", self.database.display()))
    }

    /// Starts a process, kills it at `moment`, and checks what RocksDB makes of the database.
    fn kill(&mut self, moment: Moment, summary: &mut Summary) -> Result<(), String> {
        let failed = |what: &str, e: std::io::Error| format!("{what}: {e}");
        let before = *self.model.counts();
        let progress = Progress::create(&self.progress, &before)
            .map_err(|e| failed("make the file of progress", e))?;
        let arguments = Arguments {
            database: self.database.clone(),
            progress: self.progress.clone(),
            seed: self.seed,
            trap: moment.trap(),
        };
        let process = Process::start(self.program, &arguments)?;
        let reached = process.await_moment(moment);
        process.kill()?;
        let gauges = progress.gauges().map_err(|e| failed("read progress", e))?;
        let acknowledged = progress.acknowledged();
        let acknowledged = acknowledged.map_err(|e| failed("read progress", e))?;
        let remains = remains(&self.database)?;
        self.leftovers = remains.folders > 0;
        summary.killed(gauges, remains);
        if let (Some(trap), true) = (moment.trap(), reached) {
            *summary.after_step.entry(trap.point).or_default() += 1;
            summary.held_at_step += u64::from(trap.holds);
        }
        let checker = Checker::new(&self.database, self.seed);
        summary.sst_files_verified += checker.recovered(&mut self.model, &acknowledged)?;
        summary.verified(&before, &acknowledged, self.model.counts());
        Ok(())
    }

    /// Starts a service again, and checks that it cleans up and goes on.
    fn restart(&mut self, summary: &mut Summary) -> Result<(), String> {
        let family = self.rng.random_range(0..FAMILIES.len());
        let checker = Checker::new(&self.database, self.seed);
        summary.sst_files_verified += checker.restarted(&mut self.model, family)?;
        summary.restarts_verified += 1;
        self.leftovers = false;
        Ok(())
    }
}

/// A running process, and what it prints.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(program: &Path, arguments: &Arguments) -> Result<Self, String> {
        let child = Command::new(program)
            .args(arguments.to_strings())
            // Ends with this process, and the child with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| format!("start {}: {e}", program.display()))?;
        let out = child.stdout.take().ok_or("no standard output")?;
        Ok(Self {
            child,
            lines: lines_of(out),
        })
    }

    /// Waits until it is time to kill; false if a step did not come.
    fn await_moment(&self, moment: Moment) -> bool {
        let (reached, delay) = match moment {
            Moment::Time(delay) => (true, delay),
            Moment::Step(_, delay) => (self.lines.recv_timeout(STEP_TIMEOUT).is_ok(), delay),
        };
        std::thread::sleep(delay);
        reached
    }

    fn kill(mut self) -> Result<(), String> {
        // Does nothing if the process has ended, which its status then says.
        self.child.kill().map_err(|e| format!("kill it: {e}"))?;
        let status = self.child.wait().map_err(|e| format!("await it: {e}"))?;
        match status.signal() {
            Some(SIGKILL) => Ok(()),
            _ => Err(format!("the process ended by itself: {status}")),
        }
    }
}

/// What a process prints, read by a thread that ends with the process.
fn lines_of(out: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
