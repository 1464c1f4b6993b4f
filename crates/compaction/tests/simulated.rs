//! Simulated devices take the time of their profile, and fail as it says.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_compaction::{
    Device, DeviceList, EligibleJob, Engine, MutableSettings, Outcome, Registered, Settings, Stats,
    TaskDeadline,
};
use rockmill_core::{CancelToken, DeclineReason, ErrorKind, JobInfo};
use rockmill_format::wire::{CompactionServiceInput, GivenOptions};
use rockmill_storage::Storage;
use rockmill_storage::clock::Clock;
use rockmill_testkit::VirtualClock;
use rockmill_testkit::simulated::Profile;
use rockmill_testkit::{Fault, FaultRates, UnitLink, UnitProfile, UnitStage};

use rockmill_snapshot::tree::TreeFollower;
use rockmill_testkit::storage_model::database::{DIR, Database, manifest_of};
use rockmill_testkit::storage_model::disk::Disk;
use rockmill_testkit::storage_model::family::{Input, merge_operators};
use rockmill_testkit::storage_model::storage::SimStorage;

/// Cycles of the slowest stage.
const MERGER_CYCLES: f64 = 1000.0;
const CLOCK_HZ: f64 = 1e6;

/// A profile whose merger is the slowest stage for all pairs.
fn profile(units: u32) -> UnitProfile {
    let stage = |base_cycles| UnitStage {
        base_cycles,
        key_passes: 0.0,
        value_passes: 0.0,
    };
    UnitProfile {
        units,
        clock_hz: CLOCK_HZ,
        bus_bytes: 8.0,
        decoder: stage(1.0),
        transfer: stage(1.0),
        merger: stage(MERGER_CYCLES),
        encoder: stage(1.0),
        link: None,
        memory_bytes: 1 << 30,
        faults: FaultRates::default(),
        fault_seed: 0,
    }
}

fn faulty(fault: Fault) -> UnitProfile {
    UnitProfile {
        faults: FaultRates::from_iter([(fault, 1.0)]),
        ..profile(1)
    }
}

/// A profile on which a subcompaction takes hours.
fn crawls() -> UnitProfile {
    let mut crawls = profile(1);
    crawls.clock_hz = 1e3;
    crawls.merger.base_cycles = 1e5;
    crawls
}

/// A machine in virtual time whose CPU shares no work.
struct Machine {
    engine: Engine,
    clock: VirtualClock,
}

impl Machine {
    fn new(database: &Database, threads: usize, profiles: &[(&str, UnitProfile)]) -> Self {
        Self::with_storage(database, threads, profiles, None)
    }

    /// Does the same with files on a drive with that many bytes per second, if reads and writes take time.
    fn with_storage(
        database: &Database,
        threads: usize,
        profiles: &[(&str, UnitProfile)],
        bytes_per_second: Option<f64>,
    ) -> Self {
        let simulated = profiles
            .iter()
            .map(|(name, profile)| Profile::new(name, profile.clone()).expect("it makes sense"))
            .map(|profile| Registered::new(&profile.device_name(), profile.opener()))
            .map(Device::Registered);
        let devices: Vec<_> = simulated.collect();
        let settings = Settings {
            mutable: MutableSettings {
                threads,
                // A subcompaction is verified before its thread runs another one.
                sync_threads: Some(0),
                ..MutableSettings::default()
            },
            device: DeviceList::try_from(&*devices).expect("few enough"),
            task_deadline: TaskDeadline::at_least(Duration::from_secs(1000)),
            merge_operators: merge_operators(),
            ..Settings::default()
        };
        let clock = VirtualClock::default();
        let storage = SimStorage::new(database.disk.clone(), 1, None, CancelToken::new());
        let storage = storage.timed(clock.clone(), bytes_per_second);
        let engine = Engine::new(settings, Arc::new(storage)).expect("sound settings");
        engine.wait_for_device().expect("they are there");
        Self { engine, clock }
    }

    /// Runs the job of the database, and returns its result and its time.
    fn run(&self, database: &Database) -> (Outcome, f64) {
        let (dir, cancel) = (Path::new(DIR), CancelToken::new());
        let info = database.family().info("some-session");
        let job = self
            .engine
            .prepare(dir, info, &database.family().message, &cancel);
        let began = self.clock.now();
        let finished = self
            .engine
            .run(&job.expect("such jobs are done"), dir, dir, &cancel);
        let outcome = finished.expect("the CPU does what devices do not").outcome;
        let seconds = (self.clock.now() - began).as_secs_f64();
        (outcome, seconds)
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

/// Returns a database whose job has some subcompactions.
fn database() -> Database {
    database_of(6..=usize::MAX)
}

/// Returns a database whose job has that many subcompactions.
fn database_of(subcompactions: RangeInclusive<usize>) -> Database {
    let drawn = (1..).map(|seed| Database::draw(&mut SmallRng::seed_from_u64(seed)));
    let mut fitting = drawn.filter(|database| {
        let machine = Machine::new(database, 1, &[("trial", profile(1))]);
        subcompactions.contains(&machine.run(database).0.subcompactions)
    });
    fitting.next().expect("it goes on until there is one")
}

fn is_near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-6
}

#[test]
fn a_job_of_an_old_rocksdb_gets_its_column_family_and_levels_from_elsewhere() {
    let database = database();
    let machine = Machine::new(&database, 1, &[("trial", profile(1))]);
    let prepared = |info| {
        let (dir, cancel) = (Path::new(DIR), CancelToken::new());
        let message = &database.family().message;
        let prepared = machine.engine.prepare(dir, info, message, &cancel);
        prepared.expect("such jobs are done").job.info
    };
    let info = database.family().info("some-session");
    let of_10_0 = JobInfo {
        cf_id: JobInfo::UNKNOWN_CF_ID,
        base_input_level: JobInfo::UNKNOWN_LEVEL,
        output_level: JobInfo::UNKNOWN_LEVEL,
        ..info.clone()
    };
    assert_eq!(prepared(of_10_0), info);
    assert_eq!(prepared(info.clone()), info);
}

#[test]
fn a_job_without_an_options_file_goes_by_the_newest_one_if_that_has_the_options_of_the_message() {
    let database = database();
    let file = |number| Path::new(DIR).join(format!("OPTIONS-{number:06}"));
    let offered = |version: &str, asks, given: &str| {
        let text = String::from_utf8(database.files[&file(7)].clone()).expect("it is text");
        let mut disk = database.disk.clone();
        let node = disk.create(&file(12)).expect("there is none");
        disk.append(node, text.replace("=11.12.0", version).as_bytes());
        let known = database.family();
        let message = CompactionServiceInput::decode(&known.message).expect("it is sound");
        let message = CompactionServiceInput {
            options_file_number: 0,
            options: Some(GivenOptions {
                db: format!("{{{given}create_if_missing=true;}}"),
                column_family: "{comparator=leveldb.BytewiseComparator;}".to_owned(),
            }),
            ..message
        };
        let info = JobInfo {
            reason: JobInfo::UNKNOWN_REASON,
            is_full_compaction: false,
            is_bottommost_level: false,
            rocksdb_version: asks,
            ..known.info("some-session")
        };
        let storage = SimStorage::new(disk, 1, None, CancelToken::new());
        let engine = Engine::new(Settings::default(), Arc::new(storage)).expect("settings");
        let cancel = CancelToken::new();
        let prepared = engine.prepare(Path::new(DIR), info, &message.encode(), &cancel);
        let told = |job: EligibleJob| {
            let info = &job.job.info;
            let extent = (info.is_full_compaction, info.is_bottommost_level);
            (extent, job.input.options_file_number)
        };
        prepared.map(told).map_err(|error| error.kind)
    };
    // The MANIFEST says that the job has all files, so that no files are deeper.
    let done = Ok(((true, true), 12));
    for version in ["=7.10.2", "=8.0.0", "=8.10.0"] {
        assert_eq!(offered(version, None, ""), done, "{version}");
    }
    let same = "file_checksum_gen_factory=nullptr;";
    assert_eq!(offered("=8.10.0", Some([8, 10, 0]), same), done);
    for (version, asks, given, reason) in [
        ("=8.10.0", Some([8, 11, 3]), "", DeclineReason::OptionsFile),
        (
            "=8.10.0",
            None,
            "use_direct_reads=never;",
            DeclineReason::OptionsFile,
        ),
        ("=7.7.3", None, "", DeclineReason::RocksdbVersion),
    ] {
        let declined = Err(ErrorKind::Declined(reason));
        assert_eq!(offered(version, asks, given), declined, "{version} {given}");
    }
}

#[test]
fn a_level_is_the_bottommost_if_nothing_below_overlaps_and_level_0_if_the_oldest_file_takes_part() {
    // By number: level, first and last key. The files of level 0 lie above each other.
    let files = [
        (1, 0, "a", "c"),
        (2, 0, "a", "m"),
        (3, 4, "k", "p"),
        (4, 6, "n", "z"),
    ];
    let extent = |kept: &[u64], job: &[u64], output_level| {
        let input = |&(number, level, smallest, largest): &(u64, u32, &str, &str)| {
            let internal = |key: &str| [key.as_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
            Input {
                number,
                level,
                epoch: number as u8,
                sequences: (number, number),
                smallest: internal(smallest),
                largest: internal(largest),
                bytes: vec![0],
            }
        };
        let all: Vec<_> = files
            .iter()
            .filter(|file| kept.contains(&file.0))
            .map(input)
            .collect();
        let manifest = manifest_of([(0, "default", &all[..])].into_iter());
        let mut disk = Disk::default();
        for step in disk.steps_to_make(Path::new(DIR)) {
            disk.take_step(&step).expect("an empty disk");
        }
        for (name, bytes) in [
            ("CURRENT", &b"MANIFEST-000005\n"[..]),
            ("MANIFEST-000005", &manifest),
        ] {
            let node = disk
                .create(&Path::new(DIR).join(name))
                .expect("an empty disk");
            disk.append(node, bytes);
        }
        let storage = SimStorage::new(disk, 1, None, CancelToken::new());
        let mut follower = TreeFollower::default();
        let read = follower.refresh(&storage, Path::new(DIR), (0, 0), &CancelToken::new());
        read.expect("it is sound");
        let message = CompactionServiceInput {
            input_files: job
                .iter()
                .map(|number| format!("{number:06}.sst"))
                .collect(),
            output_level,
            ..CompactionServiceInput::default()
        };
        follower.extent(&message, 0)
    };
    assert_eq!(extent(&[1, 2], &[2, 1], 0), (true, true));
    assert_eq!(extent(&[1, 2], &[1], 0), (false, true));
    assert_eq!(
        extent(&[1, 2], &[2], 0),
        (false, false),
        "the older one is left"
    );
    assert_eq!(
        extent(&[1, 2, 4], &[2, 1], 0),
        (false, false),
        "a deeper level has a file"
    );
    assert_eq!(
        extent(&[1, 2, 4], &[2, 1], 1),
        (false, true),
        "which does not overlap"
    );
    assert_eq!(
        extent(&[1, 2, 3, 4], &[2, 1], 1),
        (false, false),
        "but this does"
    );
    assert_eq!(
        extent(&[1, 2, 3, 4], &[2, 1, 3], 4),
        (false, false),
        "and so does its overlap"
    );
    assert_eq!(extent(&[1, 2, 3, 4], &[2, 1, 3, 4], 6), (true, true));
    assert_eq!(
        extent(&[1], &[7], 1),
        (false, false),
        "a file that is not there"
    );
}

#[test]
fn what_a_file_says_of_its_contents_is_read_once_in_a_session() {
    let database = database();
    let storage = SimStorage::new(database.disk.clone(), 1, None, CancelToken::new());
    let engine = Engine::new(Settings::default(), Arc::new(storage.clone())).expect("settings");
    let offered = |session: &str| {
        let (dir, cancel) = (Path::new(DIR), CancelToken::new());
        let info = database.family().info(session);
        let job = engine.prepare(dir, info, &database.family().message, &cancel);
        job.map(|job| job.job.tree.inputs)
            .map_err(|error| error.kind)
    };
    let inputs = offered("first").expect("such jobs are done");
    assert!(inputs.len() > 1);
    for input in &inputs {
        let path = Path::new(DIR).join(&input.name);
        storage.remove_file(&path).expect("removed");
    }
    assert_eq!(offered("first"), Ok(inputs));
    let missing = ErrorKind::Declined(DeclineReason::InputMissing);
    assert_eq!(offered("second"), Err(missing));
}

#[test]
fn jobs_take_the_time_of_the_formulas() {
    let database = database();
    let run = |threads, profile| {
        let machine = Machine::new(&database, threads, &[("board", profile)]);
        let (outcome, seconds) = machine.run(&database);
        assert_eq!(outcome.device, "sim:board");
        (outcome, seconds)
    };
    let (outcome, seconds) = run(1, profile(1));
    let formula = outcome.entries_read as f64 * MERGER_CYCLES / CLOCK_HZ;
    assert!(is_near(seconds, formula), "{seconds}, not {formula}");
    // With a single unit, more threads only wait.
    let (_, waiting) = run(3, profile(1));
    assert!(is_near(waiting, formula), "{waiting}, not {formula}");
    let (_, at_once) = run(3, profile(3));
    assert!(
        at_once >= formula / 3.0 && at_once < formula / 2.0,
        "{at_once} of {formula}"
    );
    let link = UnitLink {
        to_device: 1e3,
        from_device: 1e3,
    };
    let (outcome, linked) = run(
        1,
        UnitProfile {
            link: Some(link),
            ..profile(1)
        },
    );
    let bytes = outcome.totals.read.bytes + outcome.bytes_written();
    let formula = formula + bytes as f64 / 1e3;
    assert!(is_near(linked, formula), "{linked}, not {formula}");
}

#[test]
fn what_a_device_at_the_data_writes_is_not_the_hosts() {
    let database = database();
    let link = UnitLink {
        to_device: 1e3,
        from_device: 1e3,
    };
    let linked = UnitProfile {
        link: Some(link),
        ..profile(1)
    };
    for (name, profile, is_at_the_data) in [
        ("drive", profile(1), true),
        ("board", linked, false),
        // The CPU does its subcompactions.
        ("broken", faulty(Fault::Truncated), false),
    ] {
        let machine = Machine::new(&database, 1, &[(name, profile)]);
        let (outcome, _) = machine.run(&database);
        let stats = machine.stats();
        let written = stats
            .devices
            .values()
            .map(|did| did.subcompaction_near_data_bytes)
            .sum();
        let expected = if is_at_the_data {
            outcome.bytes_written()
        } else {
            0
        };
        assert_eq!(
            (expected, stats.written_bytes > 0),
            (written, true),
            "{name}"
        );
    }
}

#[test]
fn what_does_not_fit_the_devices_memory_is_refused() {
    let database = database();
    let small = UnitProfile {
        memory_bytes: 1,
        ..profile(1)
    };
    let machine = Machine::new(&database, 1, &[("small", small)]);
    let (outcome, seconds) = machine.run(&database);
    assert_eq!((&*outcome.device, seconds), ("cpu", 0.0));
    let why = outcome.device_refused.expect("it is told");
    assert!(why.starts_with("sim:small: a task needs "), "{why}");
}

#[test]
fn a_broken_context_fails_all_calls_until_the_device_is_quarantined() {
    let database = database();
    let machine = Machine::new(&database, 1, &[("breaks", faulty(Fault::Context))]);
    let (outcome, _) = machine.run(&database);
    assert_eq!(outcome.device, "cpu");
    let stats = machine.stats();
    assert_eq!(stats.simulated_faults.get("context"), Some(&1));
    assert_eq!(
        (stats.subcompactions_redone_by_cpu, stats.device_quarantined),
        (3, 1)
    );
    // The context works again, and one subcompaction tries the device.
    machine.clock.pause(Duration::from_secs(60));
    machine.run(&database);
    let stats = machine.stats();
    assert_eq!(stats.simulated_faults.get("context"), Some(&2));
    assert_eq!(
        (stats.subcompactions_redone_by_cpu, stats.device_quarantined),
        (4, 2)
    );
}

#[test]
fn a_call_that_hangs_is_abandoned() {
    let database = database();
    let machine = Machine::new(&database, 1, &[("hangs", faulty(Fault::Hang))]);
    let (outcome, _) = machine.run(&database);
    assert_eq!(outcome.device, "cpu");
    let stats = machine.stats();
    assert_eq!(
        (
            stats.subcompactions_abandoned,
            stats.subcompactions_redone_by_cpu
        ),
        (1, 1)
    );
    let why = outcome.device_refused.expect("it is told");
    assert!(why.contains("did not return within 1000.0 s"), "{why}");
    // It returns after an hour of virtual time, in which nothing else happens.
    while machine.engine.memory_taken_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_call_that_is_only_slow_stops_once_it_is_abandoned() {
    let database = database();
    let machine = Machine::new(&database, 1, &[("crawls", crawls())]);
    let (outcome, _) = machine.run(&database);
    assert_eq!(outcome.device, "cpu");
    while machine.engine.memory_taken_bytes() > 0 {
        std::thread::yield_now();
    }
    let ended = machine.clock.now().as_secs();
    assert!((1000..1001).contains(&ended), "{ended}");
    assert_eq!(machine.stats().subcompactions_abandoned, 1);
}

#[test]
fn a_device_that_is_slow_gets_few_subcompactions() {
    let database = database();
    let machine = Machine::new(
        &database,
        1,
        &[("slow", faulty(Fault::Slow)), ("usual", profile(1))],
    );
    for _ in 0..4 {
        machine.run(&database);
    }
    let stats = machine.stats();
    let of = |name| stats.devices.get(name).map_or(0, |did| did.subcompactions);
    let (slow, usual) = (of("sim:slow"), of("sim:usual"));
    assert!(slow > 0 && usual > 4 * slow, "{slow} and {usual}");
    assert_eq!(stats.simulated_faults.get("slow"), Some(&slow));
}

#[test]
fn damaged_files_are_found_and_made_again() {
    let database = database();
    for fault in Fault::ALL.into_iter().filter(|fault| fault.damages()) {
        let machine = Machine::new(&database, 1, &[("damages", faulty(fault))]);
        let (outcome, _) = machine.run(&database);
        assert_eq!(outcome.device, "cpu", "{fault}");
        let stats = machine.stats();
        let times = stats.simulated_faults.get(fault.name()).copied();
        assert_eq!(times, Some(stats.verification_failures), "{fault}");
        assert!(
            stats.subcompactions_redone_by_cpu == stats.verification_failures,
            "{fault}"
        );
    }
}

#[test]
fn a_device_whose_files_are_wrong_is_quarantined_and_tried_as_one_that_fails() {
    let database = database();
    let machine = Machine::new(&database, 1, &[("damages", faulty(Fault::Flipped))]);
    machine.run(&database);
    let counts = || {
        let stats = machine.stats();
        assert_eq!(
            stats.subcompactions_redone_by_cpu,
            stats.verification_failures
        );
        (stats.subcompactions_redone_by_cpu, stats.device_quarantined)
    };
    assert_eq!(counts(), (3, 1), "the others are not even begun there");
    machine.run(&database);
    assert_eq!(counts(), (3, 1));
    machine.clock.pause(Duration::from_secs(60));
    machine.run(&database);
    assert_eq!(counts(), (4, 2), "one subcompaction tries it, and is wrong");
}

#[test]
fn wrong_files_of_small_jobs_add_up() {
    let database = database_of(1..=2);
    let machine = Machine::new(&database, 1, &[("damages", faulty(Fault::Truncated))]);
    for _ in 0..4 {
        machine.run(&database);
    }
    let stats = machine.stats();
    assert_eq!(
        (stats.subcompactions_redone_by_cpu, stats.device_quarantined),
        (3, 1)
    );
}

#[test]
fn subcompactions_with_wrong_files_are_made_again_at_once() {
    const THREADS: usize = 16;
    const BYTES_PER_SECOND: f64 = 1e6;
    let database = database();
    // Almost no time compared to the drive.
    let run = |faults| {
        let swift = UnitProfile {
            units: THREADS as u32,
            clock_hz: 1e12,
            faults,
            ..profile(1)
        };
        let storage = Some(BYTES_PER_SECOND);
        let machine = Machine::with_storage(&database, THREADS, &[("swift", swift)], storage);
        let (outcome, seconds) = machine.run(&database);
        assert!(outcome.subcompactions <= THREADS);
        (
            machine.stats().subcompactions_redone_by_cpu,
            outcome.subcompactions as u64,
            seconds,
        )
    };
    let (redone, _, once) = run(FaultRates::default());
    assert_eq!(redone, 0);
    let (redone, subcompactions, twice) = run(FaultRates::from_iter([(Fault::Flipped, 1.0)]));
    assert_eq!(redone, subcompactions, "all had begun");
    assert!(twice < 3.0 * once, "{twice} and {once}");
}
