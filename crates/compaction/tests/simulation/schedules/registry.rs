//! Devices of a case, and their fault rates.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_compaction::{Device, DeviceList, Registered};
use rockmill_cuda::Target;
use rockmill_testkit::simulated::Profile;
use rockmill_testkit::{Fault, FaultRates, UnitLink, UnitProfile, UnitStage};

/// Draws one to three devices, most of them simulated, with or without the CPU.
pub fn draw(rng: &mut SmallRng, seed: u64) -> (DeviceList, Vec<UnitProfile>) {
    let mut profiles = Vec::new();
    let mut devices: Vec<_> = (0..rng.random_range(1..=3))
        .map(|number| match rng.random_ratio(1, 12) {
            true => Device::Kernels(Target::Host),
            false => {
                let name = format!("{seed}-{number}");
                profiles.push(draw_profile(rng));
                simulated(&name, profiles[profiles.len() - 1].clone())
            }
        })
        .collect();
    if rng.random_ratio(3, 4) {
        devices.insert(rng.random_range(0..=devices.len()), Device::Cpu);
    }
    (
        DeviceList::try_from(&*devices).expect("few enough"),
        profiles,
    )
}

/// Creates a device with a profile.
pub fn simulated(name: &str, profile: UnitProfile) -> Device {
    let profile = Profile::new(name, profile).expect("it makes sense");
    Device::Registered(Registered::new(&profile.device_name(), profile.opener()))
}

/// Draws a profile with which the model's small subcompactions take milliseconds.
fn draw_profile(rng: &mut SmallRng) -> UnitProfile {
    const FOR_SMALL_SUBCOMPACTIONS: u64 = 6000;
    const FOR_ALL: u64 = 1 << 30;
    let mut stage = || UnitStage {
        base_cycles: rng.random_range(10.0..300.0),
        key_passes: 2.0,
        value_passes: 1.0,
    };
    let [decoder, transfer, merger, encoder] = [(); 4].map(|()| stage());
    let mut rate = || rng.random_range(1e6..100e6);
    let link = UnitLink {
        to_device: rate(),
        from_device: rate(),
    };
    UnitProfile {
        units: rng.random_range(1..=3),
        clock_hz: rng.random_range(1e6..50e6),
        bus_bytes: 8.0,
        decoder,
        transfer,
        merger,
        encoder,
        link: rng.random_ratio(2, 3).then_some(link),
        memory_bytes: match rng.random_ratio(1, 6) {
            true => FOR_SMALL_SUBCOMPACTIONS,
            false => FOR_ALL,
        },
        faults: draw_rates(rng),
        fault_seed: rng.random(),
    }
}

/// Draws no faults, one frequent fault, or some of each.
fn draw_rates(rng: &mut SmallRng) -> FaultRates {
    const FREQUENT: f64 = 0.6;
    const RARE: f64 = 0.06;
    let one = *Fault::ALL.choose(rng).expect("there are some");
    match rng.random_range(0..4) {
        0 => FaultRates::default(),
        1 => FaultRates::from_iter([(one, FREQUENT)]),
        _ => FaultRates::from_iter(Fault::ALL.map(|fault| (fault, rng.random_range(0.0..RARE)))),
    }
}
