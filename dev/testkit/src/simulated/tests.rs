use rockmill_core::{Output, OutputFile, ReadReport, SstOutput};

use super::*;
use rockmill_storage::clock::SystemClock;

fn device(name: &str) -> Simulated {
    let profile: Profile = name.parse().expect("it ships");
    Simulated::new(&profile, None, SystemClock::shared())
}

/// A file of `size` bytes.
fn file(size: u64) -> OutputFile {
    OutputFile {
        number: 1,
        size,
        ..OutputFile::default()
    }
}

/// The report of a task with `pairs` pairs of one size; if `halved`, every second one is dropped.
fn report(pairs: u64, key_bytes: u64, value_bytes: u64, halved: bool) -> TaskReport {
    let written = if halved { pairs / 2 } else { pairs };
    let pair_bytes = key_bytes + TAG_SIZE as u64 + value_bytes;
    let read = ReadReport {
        entries: vec![pairs / 4, pairs - pairs / 4],
        key_bytes: pairs * (key_bytes + TAG_SIZE as u64),
        value_bytes: pairs * value_bytes,
        bytes: pairs * pair_bytes,
        kept: written,
        ..ReadReport::default()
    };
    let ssts = SstOutput {
        files: vec![file(written * pair_bytes)],
        verified: true,
        ..SstOutput::default()
    };
    TaskReport {
        read,
        output: Output::Ssts(ssts),
        ..TaskReport::default()
    }
}

#[test]
fn tasks_take_the_time_of_the_published_formulas() {
    const PAIRS: u64 = 1_000_000;
    for name in UnitProfile::names() {
        let device = device(name);
        for (key, value) in [(8, 32), (16, 64), (16, 1024), (256, 32), (64, 0)] {
            for halved in [false, true] {
                let kept = if halved { 0.5 } else { 1.0 };
                let report = report(PAIRS, u64::from(key), u64::from(value), halved);
                let stages = device.stages(&report);
                let published = device.profile.unit_speed(key, value, kept);
                let seconds = PAIRS as f64 / published.pairs_per_second;
                assert!(
                    (stages.unit / seconds - 1.0).abs() < 1e-12,
                    "{name} {key}x{value}"
                );
                let ways = device.profile.link.map(|link| {
                    let back = report.files()[0].size as f64 / link.from_device;
                    (report.read.bytes as f64 / link.to_device, back)
                });
                assert_eq!(ways.unwrap_or_default(), (stages.there, stages.back));
            }
        }
    }
}

#[test]
fn as_many_tasks_as_units_take_as_long_as_one() {
    let device = device("fpga-cu");
    let stages = Stages {
        there: 0.0,
        back: 0.0,
        ..device.stages(&report(1_000_000, 8, 32, false))
    };
    let mut timeline = Timeline::new(device.profile.units);
    let mut ends = || timeline.add(Duration::ZERO, &stages).as_secs_f64() / stages.unit;
    let ends: Vec<_> = (0..16).map(|_| ends().round()).collect();
    assert_eq!(ends, [[1.0; 8], [2.0; 8]].concat());
}

#[test]
fn a_task_of_nothing_takes_no_time() {
    let nothing = device("mid-gpu").stages(&TaskReport::default());
    let none = Stages {
        there: 0.0,
        unit: 0.0,
        back: 0.0,
    };
    assert_eq!(nothing, none);
}

#[test]
fn a_share_is_one_of_a_whole() {
    assert_eq!(share(0), 0.0);
    assert_eq!(share(1 << 63), 0.5);
    assert!(share(u64::MAX) < 1.0);
}
