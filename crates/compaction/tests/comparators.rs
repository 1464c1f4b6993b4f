//! A comparator that the application attaches: jobs are those of a stated order, or are declined.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_compaction::{Device, Engine, MutableSettings, Settings};
use rockmill_core::{
    Attached, CancelToken, Compare, CustomComparator, DeclineReason, Error, ErrorKind, Job,
    Plugins, Result,
};
use rockmill_cuda::Target;
use rockmill_format::compression::Implementation;
use rockmill_format::key::KeyOrder;
use rockmill_format::unique_id::SessionId;
use rockmill_format::wire::CompactionServiceInput;
use rockmill_snapshot::tree::user_key;
use rockmill_testkit::storage_model::database::{DIR, Database};
use rockmill_testkit::storage_model::family::{LAST_LEVEL, Shape, merge_operators, set_identity};
use rockmill_testkit::storage_model::storage::SimStorage;

const NAME: &str = "mine";

/// Number of databases that a test draws.
const CASES: u64 = 20;

/// A comparator of an application.
#[derive(Debug)]
enum Own {
    Bytewise,
    Reverse,
    /// That of bytes, but these two keys have changed places.
    Swapped(Vec<u8>, Vec<u8>),
    /// It throws at this key.
    Failing(Vec<u8>),
    /// It throws at all keys.
    Never,
}

impl Compare for Own {
    fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering> {
        let place = |key: &[u8]| match self {
            Self::Swapped(one, other) if key == one => other.clone(),
            Self::Swapped(one, other) if key == other => one.clone(),
            _ => key.to_vec(),
        };
        match self {
            Self::Reverse => Ok(b.cmp(a)),
            Self::Failing(key) if key == a || key == b => Err(failed()),
            Self::Never => Err(failed()),
            _ => Ok(place(a).cmp(&place(b))),
        }
    }
}

fn failed() -> Error {
    Error::declined(DeclineReason::PluginFailed, "the comparator failed")
}

fn draw(seed: u64, comparator: &'static str, order: KeyOrder) -> Database {
    let shape = Shape {
        comparator: (comparator, order),
        ..Shape::default()
    };
    Database::with_families(&mut SmallRng::seed_from_u64(seed), &[shape])
}

/// An engine on a database whose comparator is attached, or has a stated order.
struct Machine<'a> {
    database: &'a Database,
    engine: Engine,
    storage: SimStorage,
    attached: Option<Arc<Plugins>>,
}

/// Names and bytes of the files of a job, and the device that has made them.
type Files = (Vec<(String, Vec<u8>)>, String);

impl<'a> Machine<'a> {
    fn new(database: &'a Database, device: Device) -> Self {
        Self::stating(database, device, None)
    }

    fn stating(database: &'a Database, device: Device, stated: Option<&str>) -> Self {
        let storage = SimStorage::new(database.disk.clone(), 1, None, CancelToken::new());
        let mut settings = Settings {
            mutable: MutableSettings {
                threads: 3,
                ..MutableSettings::default()
            },
            device: device.into(),
            merge_operators: merge_operators(),
            ..Settings::default()
        };
        if let Some(stated) = stated {
            settings.state_comparator(stated).expect("it is sound");
        }
        let engine = Engine::new(settings, Arc::new(storage.clone())).expect("sound settings");
        engine.wait_for_device().expect("it is there");
        Self {
            database,
            engine,
            storage,
            attached: None,
        }
    }

    fn attaching(self, name: &str, comparator: Own) -> Self {
        let comparator = CustomComparator(Arc::new(comparator));
        let plugins = Plugins {
            comparator: Attached::Named(name.to_owned(), comparator),
            ..Plugins::default()
        };
        Self {
            attached: Some(Arc::new(plugins)),
            ..self
        }
    }

    /// Prepares the job of the database, or another one to this level.
    fn prepare(&self, other: Option<(&CompactionServiceInput, u32)>) -> Result<Job> {
        let family = self.database.family();
        let mut info = family.info("some-session");
        info.plugins.clone_from(&self.attached);
        let mut message = family.message.clone();
        if let Some((input, level)) = other {
            (info.is_bottommost_level, info.is_full_compaction) = (false, false);
            info.output_level = level as i32;
            message = input.encode();
        }
        let (dir, cancel) = (Path::new(DIR), CancelToken::new());
        Ok((self.engine.prepare(dir, info, &message, &cancel)?).job)
    }

    /// Runs the job of the database.
    fn run(&self) -> Result<Files> {
        let (dir, cancel) = (Path::new(DIR), CancelToken::new());
        let mut job = self.prepare(None)?;
        job.compressed_by = Some(Implementation::Rockmill1);
        set_identity(&mut job, SessionId { upper: 1, lower: 1 }.encode(), 7);
        let job = self.engine.eligible(job)?;
        let finished = self.engine.run(&job, dir, dir, &cancel)?;
        let files = self.storage.files_in(finished.staging.path());
        Ok((files, finished.outcome.device))
    }

    /// Runs the job, which must be declined, and leaves nothing.
    fn declined(&self) -> DeclineReason {
        let error = self.run().expect_err("it is declined");
        let folder = Path::new(DIR).join("rockmill.staging");
        let left = self.storage.disk().list(&folder).unwrap_or_default();
        let left: Vec<_> = left.iter().filter(|name| !name.starts_with('.')).collect();
        assert!(left.is_empty(), "{left:?}");
        match error.kind {
            ErrorKind::Declined(reason) => reason,
            kind => panic!("{kind:?}: {error}"),
        }
    }
}

#[test]
fn a_comparator_with_the_order_of_bytes_makes_the_files_of_a_stated_one() {
    let kernels = Device::Kernels(Target::Host);
    let mut files = 0;
    for (order, stated) in [
        (KeyOrder::Bytewise, "mine=bytewise"),
        (KeyOrder::ReverseBytewise, "mine=reverse"),
    ] {
        for seed in 1..=CASES {
            let database = draw(seed, NAME, order);
            let own = match order {
                KeyOrder::Bytewise => Own::Bytewise,
                KeyOrder::ReverseBytewise => Own::Reverse,
            };
            let machine = Machine::stating(&database, Device::Cpu, Some(stated));
            let expected = machine.run().expect("such jobs are done");
            let machine = Machine::new(&database, kernels).attaching(NAME, own);
            assert!(machine.run() == Ok(expected.clone()), "seed {seed}");
            assert_eq!(machine.engine.stats().jobs_with_plugins, 1);
            files += expected.0.len();
            // A statement is enough, also if the comparator is attached.
            let machine = Machine::stating(&database, kernels, Some(stated));
            let machine = machine.attaching(NAME, Own::Never);
            let (found, _) = machine.run().expect("nothing calls it");
            assert!(found == expected.0, "seed {seed}");
            assert_eq!(machine.engine.stats().jobs_with_plugins, 0);
        }
    }
    assert!(files > 2 * CASES as usize, "{files}");
}

#[test]
fn a_comparator_that_contradicts_bytes_in_the_middle_of_a_job_declines_it_and_later_ones() {
    let mut later = 0;
    for seed in 1..=CASES {
        let database = draw(seed, NAME, KeyOrder::Bytewise);
        let keys: Vec<_> = database.family().expected.keys().cloned().collect();
        let Some(pair) = keys.get(keys.len() / 2..keys.len() / 2 + 2) else {
            continue;
        };
        let own = Own::Swapped(pair[0].clone(), pair[1].clone());
        let machine = Machine::new(&database, Device::Cpu).attaching(NAME, own);
        assert_eq!(machine.declined(), DeclineReason::Comparator, "seed {seed}");
        assert_eq!(machine.declined(), DeclineReason::Comparator, "seed {seed}");
        let why = machine.run().expect_err("it is declined").what;
        later += u64::from(why.contains("earlier job"));
        let own = Own::Failing(pair[0].clone());
        let machine = Machine::new(&database, Device::Cpu).attaching(NAME, own);
        for _ in 0..2 {
            assert_eq!(
                machine.declined(),
                DeclineReason::PluginFailed,
                "seed {seed}"
            );
        }
    }
    assert!(later > CASES / 2, "{later}");
}

#[test]
fn a_comparator_is_asked_about_all_files_of_deeper_levels() {
    const OUTPUT_LEVEL: u32 = LAST_LEVEL - 1;
    let mut found = 0;
    for seed in 1..=CASES {
        let database = draw(seed, NAME, KeyOrder::Bytewise);
        let own = Own::Swapped(b"deep1".to_vec(), b"deep2".to_vec());
        let machine = Machine::new(&database, Device::Cpu).attaching(NAME, own);
        let whole = machine.prepare(None).expect("such jobs are done");
        assert_eq!(whole.tree.deeper_bounds, [[0; 0]; 0]);
        let files = whole.tree.inputs.into_iter();
        let (deep, upper): (Vec<_>, Vec<_>) = files.partition(|file| file.level == LAST_LEVEL);
        if deep.is_empty() || upper.is_empty() {
            continue;
        }
        let message = CompactionServiceInput::decode(&database.family().message);
        let message = CompactionServiceInput {
            input_files: upper.into_iter().map(|file| file.name).collect(),
            output_level: OUTPUT_LEVEL as i32,
            ..message.expect("it is sound")
        };
        let job = machine.prepare(Some((&message, OUTPUT_LEVEL)));
        let mut job = job.expect("such jobs are done");
        let bounds = deep.iter().flat_map(|file| [&file.smallest, &file.largest]);
        let bounds: Vec<_> = bounds.map(|key| user_key(key).to_vec()).collect();
        assert_eq!(job.tree.deeper_bounds, bounds);
        job.tree.deeper_bounds = vec![b"deep1".to_vec(), b"deep2".to_vec()];
        let error = machine.engine.eligible(job).expect_err("the order differs");
        assert_eq!(error.kind, ErrorKind::Declined(DeclineReason::Comparator));
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn a_comparator_is_only_asked_for_the_name_in_options() {
    let database = draw(1, NAME, KeyOrder::Bytewise);
    let machine = Machine::new(&database, Device::Cpu).attaching("other", Own::Bytewise);
    assert_eq!(machine.declined(), DeclineReason::Comparator);
    let database = draw(1, "leveldb.BytewiseComparator", KeyOrder::Bytewise);
    let own = "leveldb.BytewiseComparator";
    let machine = Machine::new(&database, Device::Cpu).attaching(own, Own::Never);
    assert!(machine.run().is_ok());
    assert_eq!(machine.engine.stats().jobs_with_plugins, 0);
}
