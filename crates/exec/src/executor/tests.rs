//! The executor with tasks that compute nothing.

use std::sync::mpsc::{Receiver, Sender, channel};

use rockmill_core::{
    DeclineReason, ErrorKind, Footprint, Lock, Operator, ReadTask, Request, Support,
};
use rockmill_format::compression::{CompressionType, Implementation};
use rockmill_storage::clock::SystemClock;

use super::*;
use crate::budget::{Entry, HOST, Priority};
use crate::device::{Device, DeviceList, Registered};
use crate::throughput::TaskSize;

/// Behaviour of a task on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Work,
    Fail,
    Refuse,
    Panic,
    /// Returns once the test allows it.
    Hang,
}

/// A device that computes nothing: the tasks contain their behaviour.
#[derive(Debug)]
struct NoDevice;

impl Backend for NoDevice {
    fn name(&self) -> &str {
        "test"
    }

    fn supports(&self, _request: &Request<'_>) -> Support {
        Support::Yes
    }

    fn footprint(&self, _request: &Request<'_>) -> Footprint {
        Footprint::default()
    }

    fn run(&self, _task: ReadTask<'_>, _operator: Operator<'_>) -> Result<TaskReport> {
        Err(Error::internal("nothing is computed here"))
    }
}

struct Script {
    size: JobSize,
    bytes: Vec<u64>,
    does: Vec<Does>,
    /// Result of the tasks on the CPU.
    on_cpu: Result<()>,
    may_run_on_cpu: bool,
    let_go: Lock<Receiver<()>>,
    log: Lock<Vec<String>>,
}

struct Run {
    script: Arc<Script>,
    task: usize,
    device: String,
}

impl Script {
    /// Tasks that do so; one that hangs continues once the sender is dropped.
    fn new(does: &[Does], on_cpu: Result<()>) -> (Arc<Self>, Sender<()>) {
        let bytes: Vec<_> = (1..=does.len() as u64).collect();
        let all = TaskSize {
            bytes: bytes.iter().sum(),
            entries: 1,
            compression: Some((CompressionType::None, Implementation::Library)),
        };
        let (sender, receiver) = channel();
        let script = Arc::new(Self {
            size: JobSize::new(all, &bytes),
            bytes,
            does: does.to_vec(),
            on_cpu,
            may_run_on_cpu: true,
            let_go: Lock::new(receiver),
            log: Lock::default(),
        });
        (script, sender)
    }

    fn note(&self, what: String) {
        self.log.lock().push(what);
    }

    /// Returns the log lines with this word, sorted.
    fn noted(&self, word: &str) -> Vec<String> {
        let log = self.log.lock();
        let mut found: Vec<_> = log
            .iter()
            .filter(|what| what.contains(word))
            .cloned()
            .collect();
        found.sort();
        found
    }
}

impl Tasks for Script {
    fn size(&self) -> &JobSize {
        &self.size
    }

    fn input_bytes(&self) -> &[u64] {
        &self.bytes
    }

    fn bytes_per_second(&self) -> u64 {
        0
    }

    fn may_run_on_cpu(&self) -> bool {
        self.may_run_on_cpu
    }

    fn begin(self: Arc<Self>, start: Start<'_>) -> Arc<dyn TaskRun> {
        Arc::new(Run {
            task: start.task,
            device: start.device.to_owned(),
            script: self,
        })
    }

    fn discard(&self, task: usize) -> Result<()> {
        self.note(format!("discard {task}"));
        Ok(())
    }

    fn help(&self, _handle: &TaskHandle) {}

    fn on_event(&self, event: Event<'_>) {
        match event {
            Event::Redone { task, .. } => self.note(format!("redone {task}")),
            Event::Abandoned { .. } => self.note("abandoned".to_owned()),
            Event::Quarantined { .. } => self.note("quarantined".to_owned()),
            Event::Moved { .. } | Event::Failed { .. } => {}
        }
    }
}

impl TaskRun for Run {
    fn prepare(&self) -> Result<Vec<InputTable>> {
        Ok(Vec::new())
    }

    fn run(&self, _inputs: Vec<InputTable>, call: &Call) -> Result<TaskReport> {
        let report = TaskReport::default();
        if self.device == "cpu" {
            return self.script.on_cpu.clone().map(|()| report);
        }
        match self.script.does[self.task] {
            Does::Work => Ok(report),
            Does::Fail => Err(Error::new(ErrorKind::Device, "it fails")),
            Does::Refuse => Err(Error::new(ErrorKind::Unsupported, "it cannot")),
            Does::Panic => panic!("in the driver"),
            Does::Hang => {
                // Until the sender is dropped.
                let _ = self.script.let_go.lock().recv();
                assert!(call.stop().is_cancelled());
                let made = call.while_open(|| Ok(()));
                self.script.note(format!("late file: {}", made.is_ok()));
                Ok(report)
            }
        }
    }

    fn complete(&self, _report: TaskReport, _handle: &TaskHandle) -> Result<()> {
        self.script
            .note(format!("complete {} {}", self.task, self.device));
        Ok(())
    }

    fn end(&self) {}
}

const TASK_BYTES: u64 = 10;

struct World {
    executor: Executor,
    script: Arc<Script>,
    let_go: Option<Sender<()>>,
}

/// Tasks on a device with one slot. The CPU runs only tasks at which the device fails.
fn world(does: &[Does], on_cpu: Result<()>) -> World {
    // Only a call that hangs may be late, even on a busy machine.
    let task_deadline = match does.contains(&Does::Hang) {
        true => Duration::from_millis(50),
        false => Duration::from_secs(1000),
    };
    let clock = SystemClock::shared();
    let device = Registered::new("test", Box::new(|_, _| Arc::new(NoDevice)));
    let devices = DeviceList::from(Device::Registered(device));
    let registry = DeviceRegistry::open(devices, rockmill_cuda::CudaSettings::default(), &clock);
    registry.wait().expect("it opens");
    let budget = Arc::new(Budget::new(1, 100, Arc::clone(&clock)));
    let (script, let_go) = Script::new(does, on_cpu);
    World {
        executor: Executor::new(
            registry,
            budget,
            TaskDeadline::at_least(task_deadline),
            clock,
        ),
        script,
        let_go: Some(let_go),
    }
}

impl World {
    /// Runs all tasks, then calls `then`. Returns the devices that ran each task in the end.
    fn run(&self, then: impl FnOnce(&TaskHandle) -> Result<()>) -> Result<Vec<usize>> {
        let (entry, cancel) = (
            Entry {
                database: Some(1),
                expected_bytes: 0,
            },
            CancelToken::new(),
        );
        let budget = self.executor.budget();
        let share = budget.enter(entry, Priority::Normal, &cancel)?;
        share.admit(TASK_BYTES, &cancel)?;
        let owned = OwnedTasks {
            tasks: Arc::clone(&self.script) as _,
            devices: self.executor.registry().opened(),
            task_memory_bytes: TASK_BYTES,
            stop: cancel,
        };
        let handle = self.executor.submit(&share, owned);
        handle.wait().and_then(|()| then(&handle))?;
        Ok(handle.take().iter().map(|made| made.device).collect())
    }

    fn done(&self) -> Vec<usize> {
        self.run(|_| Ok(()))
            .expect("the CPU does what the device does not")
    }
}

#[test]
fn the_cpu_runs_what_a_device_fails_at() {
    let world = world(&[Does::Work, Does::Fail, Does::Panic, Does::Work], Ok(()));
    assert_eq!(world.done(), [1, HOST, HOST, 1]);
    let script = &world.script;
    assert_eq!(script.noted("redone"), ["redone 1", "redone 2"]);
    assert_eq!(script.noted("discard"), ["discard 1", "discard 2"]);
    assert_eq!(script.noted("complete").len(), 4);
    assert!(script.noted("quarantined").is_empty());
    assert_eq!(world.executor.budget().taken_bytes(), 0);
}

#[test]
fn a_device_that_fails_again_and_again_is_quarantined() {
    let world = world(&[Does::Fail; 5], Ok(()));
    assert_eq!(world.done(), [HOST; 5]);
    assert_eq!(world.script.noted("redone").len(), 3);
    assert_eq!(world.script.noted("quarantined").len(), 1);
}

#[test]
fn a_device_that_does_not_support_some_tasks_stays_in_use() {
    let does = [
        Does::Refuse,
        Does::Refuse,
        Does::Refuse,
        Does::Refuse,
        Does::Work,
    ];
    let world = world(&does, Ok(()));
    assert_eq!(world.done(), [HOST, HOST, HOST, HOST, 1]);
    assert_eq!(world.script.noted("redone").len(), 4);
    assert!(world.script.noted("quarantined").is_empty());
}

#[test]
fn a_call_that_hangs_is_abandoned_and_creates_no_more_files() {
    let mut world = world(&[Does::Hang, Does::Work], Ok(()));
    assert_eq!(world.done()[0], HOST);
    assert_eq!(world.script.noted("abandoned").len(), 1);
    let budget = Arc::clone(world.executor.budget());
    assert_eq!(
        budget.taken_bytes(),
        TASK_BYTES,
        "the call still holds its memory"
    );
    drop(world.let_go.take());
    while budget.taken_bytes() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(world.script.noted("late file"), ["late file: false"]);
    assert!(world.script.noted("complete 0 test").is_empty());
}

#[test]
fn a_call_that_hangs_fails_a_job_that_the_cpu_cannot_do() {
    let mut world = world(&[Does::Hang], Ok(()));
    let script = Arc::get_mut(&mut world.script).expect("it has one owner");
    script.may_run_on_cpu = false;
    let error = world.run(|_| Ok(())).expect_err("nothing else can do it");
    assert_eq!(error.kind, ErrorKind::Device);
    assert!(error.what.contains("did not return within"), "{error}");
    assert_eq!(world.script.noted("abandoned").len(), 1);
    let budget = Arc::clone(world.executor.budget());
    assert_eq!(budget.taken_bytes(), TASK_BYTES, "the call has its memory");
    drop(world.let_go.take());
    while budget.taken_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_the_cpu_fails_at_fails_the_job() {
    let declined = Error::declined(DeclineReason::MergeOperands, "why");
    let world = world(&[Does::Work, Does::Fail, Does::Work], Err(declined.clone()));
    assert_eq!(world.run(|_| Ok(())), Err(declined));
    assert!(
        world.script.noted("quarantined").is_empty(),
        "it may be the input"
    );
    assert_eq!(world.executor.budget().taken_bytes(), 0);
}

#[test]
fn output_that_proves_wrong_is_made_again() {
    let world = world(&[Does::Work; 2], Ok(()));
    let wrong = || Err(Error::new(ErrorKind::Verification, "other bytes"));
    let judge = |handle: &TaskHandle| {
        handle.verdict(0, Ok(()))?;
        handle.verdict(1, wrong())?;
        handle.wait()?;
        assert_eq!(
            handle.verdict(1, wrong()),
            wrong(),
            "the CPU's has no other"
        );
        Ok(())
    };
    assert_eq!(world.run(judge), Ok(vec![1, HOST]));
    assert_eq!(world.script.noted("redone"), ["redone 1"]);
}

#[test]
fn a_job_that_fails_beside_a_call_that_hangs_gives_its_slots_back() {
    let declined = Error::declined(DeclineReason::MergeOperands, "why");
    let mut world = world(&[Does::Hang], Err(declined.clone()));
    assert_eq!(world.run(|_| Ok(())), Err(declined));
    assert_eq!(world.executor.budget().taken_bytes(), TASK_BYTES);
    // The device is quarantined, so the next job needs the CPU's only slot.
    let hangs = std::mem::replace(&mut world.script, Script::new(&[Does::Work], Ok(())).0);
    assert_eq!(world.done(), [HOST]);
    assert_eq!(hangs.noted("abandoned").len(), 1);
}

#[test]
fn a_cancelled_job_ends_while_many_tasks_wait() {
    let declined = Error::declined(DeclineReason::MergeOperands, "why");
    let world = world(&[Does::Fail; 64], Err(declined.clone()));
    for _ in 0..20 {
        world.executor.budget().resize(16, 100_000);
        assert_eq!(world.run(|_| Ok(())), Err(declined.clone()));
    }
    assert_eq!(world.executor.budget().taken_bytes(), 0);
}
