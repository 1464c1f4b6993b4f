//! A device that fails at some or all subcompactions costs time, and changes nothing else.

mod machine;
mod stuck;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill_compaction::Registered;
use rockmill_compaction::{Device, DeviceList, DeviceWork};
use rockmill_format::compression::Implementation;
use rockmill_testkit::UnitProfile;
use rockmill_testkit::simulated::Profile;

use machine::{KERNELS, Left, Machine, run, run_compressed, run_on, start};
use rockmill_testkit::storage_model::database::Database;

/// Number of databases that a test draws.
const CASES: u64 = 30;

/// Memory that the first subcompaction that did not get any needed.
fn need(left: &Left) -> Option<u64> {
    let mut words = left.refused.as_ref()?.split(' ').map(str::parse);
    words.find_map(Result::ok)
}

#[test]
fn files_do_not_depend_on_what_did_which_subcompaction() {
    let (mut whole, mut in_part, mut not_at_all) = (0, 0, 0);
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, Device::Cpu, None, 0);
        assert_eq!((&*expected.device, &expected.refused), ("cpu", &None));
        let none = run(&database, KERNELS, Some(1), 0);
        // Some subcompactions need more than this one.
        let some = run(&database, KERNELS, need(&none), 0);
        let all = run(&database, KERNELS, None, 0);
        for left in [none, some, all] {
            assert!(left.files == expected.files, "seed {seed}");
            let redone = left.stats.subcompactions_redone_by_cpu;
            match (&left.refused, &*left.device) {
                (None, _) => whole += 1,
                (Some(_), "cpu") => not_at_all += 1,
                (Some(why), _) => {
                    assert!(redone > 0 && why.contains("memory"), "{redone}, {why}");
                    in_part += 1;
                }
            }
        }
    }
    let counts = [whole, in_part, not_at_all];
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

/// Draws one to three devices, simulated ones among them, with or without the CPU, and with enough memory or not.
fn draw_machine(rng: &mut SmallRng) -> Machine {
    let simulated = UnitProfile::names().map(|name| {
        let profile: Profile = name.parse().expect("it ships");
        Device::Registered(Registered::new(&profile.device_name(), profile.opener()))
    });
    let kinds: Vec<Device> = [KERNELS; 3].into_iter().chain(simulated).collect();
    let mut devices: Vec<_> = (0..rng.random_range(1..=3))
        .map(|_| *kinds.choose(rng).expect("there are some"))
        .collect();
    if rng.random_ratio(3, 4) {
        devices.insert(rng.random_range(0..=devices.len()), Device::Cpu);
    }
    Machine {
        devices: DeviceList::try_from(&*devices).expect("few enough"),
        threads: rng.random_range(1..=3),
        memory_bytes: *[None, None, Some(300_000)].choose(rng).expect("some"),
        damaged: 0,
    }
}

#[test]
fn files_do_not_depend_on_which_devices_share_the_subcompactions() {
    const MIXES: u64 = 4;
    let (mut mixed, mut several, mut simulated) = (0, 0, 0);
    for seed in 1..=CASES {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let database = Database::draw(rng);
        let expected = run(&database, Device::Cpu, None, 0);
        for _ in 0..MIXES {
            let machine = draw_machine(rng);
            let left = run_on(&database, machine);
            assert!(left.files == expected.files, "seed {seed}: {machine:?}");
            let by_device = left.devices.iter().map(|work| work.subcompactions);
            let subcompactions: u64 = by_device.sum();
            assert_eq!(
                subcompactions, left.subcompactions,
                "seed {seed}: {machine:?}"
            );
            let counted = left.stats.devices.values().map(|did| did.subcompactions);
            assert_eq!(
                counted.sum::<u64>(),
                subcompactions,
                "seed {seed}: {machine:?}"
            );
            let host = left.devices.iter().find(|work| work.device == "cpu");
            if left.refused.is_none() {
                let is_named = machine.devices.contains(Device::Cpu);
                assert!(is_named || host.is_none(), "seed {seed}: {machine:?}");
                let is_simulated = |work: &DeviceWork| work.device.starts_with("sim:");
                simulated += u64::from(left.devices.iter().any(is_simulated));
                mixed += u64::from(left.devices.len() > 1 && host.is_some());
                several += u64::from(
                    left.devices
                        .iter()
                        .filter(|work| work.device != "cpu")
                        .count()
                        > 1,
                );
            }
        }
    }
    assert!(
        mixed > 0 && several > 0 && simulated > 0,
        "{mixed} with the CPU, {several} with several devices, {simulated} with simulated ones"
    );
}

#[test]
fn who_compresses_is_chosen_by_the_devices_and_can_be_repeated_without_them() {
    let (mut own, mut by_libraries_on_device) = (0, 0);
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let run = |device: Device, device_compression, compressed_by| {
            let machine = Machine {
                devices: device.into(),
                threads: 3,
                memory_bytes: None,
                damaged: 0,
            };
            let (engine, storage) = start(&database, machine, None);
            let changed = engine.change_settings(|s| s.device_compression = device_compression);
            changed.expect("it makes sense");
            run_compressed(&database, &engine, &storage, compressed_by)
        };
        let by_libraries = run(Device::Cpu, true, None);
        assert_eq!(by_libraries.compressed_by, Implementation::Library);
        let chosen = run(KERNELS, true, None);
        own += u64::from(chosen.compressed_by == Implementation::Rockmill1);
        let repeated = run(Device::Cpu, true, Some(chosen.compressed_by));
        assert!(repeated.files == chosen.files, "seed {seed}");
        let forbidden = run(KERNELS, false, None);
        assert_eq!(forbidden.compressed_by, Implementation::Library);
        assert!(forbidden.files == by_libraries.files, "seed {seed}");
        let is_chosen_own = chosen.compressed_by == Implementation::Rockmill1;
        by_libraries_on_device += u64::from(is_chosen_own && forbidden.device != "cpu");
    }
    assert!(by_libraries_on_device > 0);
    assert!(own > 0 && own < CASES, "{own} of {CASES}");
}

#[test]
fn subcompactions_whose_files_are_not_what_the_device_meant_are_made_again() {
    let mut made_again = 0;
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let expected = run(&database, KERNELS, None, 0);
        if expected.device == "cpu" || expected.files.is_empty() {
            continue;
        }
        let left = run(&database, KERNELS, None, 1);
        assert!(left.files == expected.files, "seed {seed}");
        assert_eq!(left.stats.subcompactions_redone_by_cpu, 1, "seed {seed}");
        assert_eq!(left.stats.verification_failures, 1, "seed {seed}");
        let why = left.refused.expect("something was wrong");
        assert!(why.starts_with("cuda-on-host: "), "{why}");
        made_again += 1;
    }
    assert!(made_again > 0);
}

#[test]
fn a_device_without_memory_is_not_quarantined() {
    let mut most = 0;
    for seed in 1..=CASES {
        let database = Database::draw(&mut SmallRng::seed_from_u64(seed));
        let left = run(&database, KERNELS, Some(1), 0);
        assert_eq!(left.stats.device_quarantined, 0, "seed {seed}");
        assert_eq!(left.device, "cpu", "seed {seed}");
        most = most.max(left.stats.subcompactions_redone_by_cpu);
    }
    // More than the failures in a row that quarantine a device.
    assert!(most > 3, "{most}");
}
