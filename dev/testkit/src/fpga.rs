//! The published model of an FPGA compaction unit: X-Engine's, "FPGA-Accelerated Compactions for LSM-based Key-Value
//! Store" (FAST'20).
//!
//! A unit is a pipeline, so its slowest stage determines its speed. A stage processes `f / (b + (A * key + value) /
//! bus)` pairs per second: base cycles, then the bytes of a pair over the bus, the key `A` times. The merger handles
//! only keys. Decoder, transfer and merger process all pairs of the input, the encoder only those that are kept.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::faults::FaultRates;

/// Valid ranges of the parameters. A value above the range is a mistake, because no board or chip has it. With values
/// below the range, a task would not end.
const UNITS: RangeInclusive<u32> = 1..=1024;
const CLOCK_HZ: RangeInclusive<f64> = 1e3..=1e12;
/// At least a single wire.
const BUS_BYTES: RangeInclusive<f64> = 0.125..=65_536.0;
const BASE_CYCLES: RangeInclusive<f64> = 0.001..=1e6;
const PASSES: RangeInclusive<f64> = 0.0..=1000.0;
/// Bytes per second.
const LINK: RangeInclusive<f64> = 1e3..=1e15;
const MEMORY_BYTES: RangeInclusive<u64> = 1..=1 << 50;

/// Larger than any valid file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Built-in profiles: X-Engine's board with eight four-way units at 200 MHz; a computational drive that is slower than
/// the host, as in Co-KV; a mid-range GPU.
const SHIPPED: [(&str, &str); 3] = [
    ("fpga-cu", include_str!("../profiles/fpga-cu.json")),
    (
        "near-data-ssd",
        include_str!("../profiles/near-data-ssd.json"),
    ),
    ("mid-gpu", include_str!("../profiles/mid-gpu.json")),
];

/// Parameters of an accelerator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitProfile {
    /// Number of parallel units, each for one task.
    pub units: u32,
    /// Cycles per second.
    pub clock_hz: f64,
    /// Bytes that a stage moves per cycle.
    pub bus_bytes: f64,
    /// Decoder of the inputs' blocks.
    pub decoder: UnitStage,
    /// From decoder to key buffer and ring buffer.
    pub transfer: UnitStage,
    /// Comparison of keys.
    pub merger: UnitStage,
    /// Encoder of the output's blocks.
    pub encoder: UnitStage,
    /// Link that all units share for inputs and outputs; `None` if the data is at the device.
    #[serde(default)]
    pub link: Option<UnitLink>,
    /// Memory for inputs and outputs of all tasks.
    pub memory_bytes: u64,
    /// Rates of faults.
    #[serde(default)]
    pub faults: FaultRates,
    /// Seed for choosing the tasks with a fault.
    #[serde(default)]
    pub fault_seed: u64,
}

/// A link with both directions in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitLink {
    /// Bytes per second to the device.
    pub to_device: f64,
    /// Bytes per second back.
    pub from_device: f64,
}

/// A stage of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitStage {
    /// Cycles for any pair.
    pub base_cycles: f64,
    /// Number of times that a key passes the bus.
    pub key_passes: f64,
    /// Number of times that a value passes the bus.
    pub value_passes: f64,
}

/// Speed of a unit for pairs of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UnitSpeed {
    /// Bytes of keys.
    pub key_bytes: u32,
    /// Bytes of values.
    pub value_bytes: u32,
    /// Input pairs per second of each stage: decoder, transfer, merger, encoder.
    pub stages: [f64; 4],
    /// The lowest of them.
    pub pairs_per_second: f64,
    /// Name of the slowest stage.
    pub bottleneck: &'static str,
}

/// Names of the stages, in the order of [`UnitSpeed::stages`].
pub const UNIT_STAGES: [&str; 4] = ["decoder", "transfer", "merger", "encoder"];

impl UnitProfile {
    /// Returns the names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.into_iter().map(|(name, _)| name)
    }

    /// Returns a built-in profile by name, or reads one from a file whose name ends in `.json`.
    ///
    /// # Errors
    /// One sentence about the error.
    pub fn find(name: &str) -> Result<Self, String> {
        if name.ends_with(".json") {
            let text = read(name).map_err(|e| format!("cannot read the profile {name}: {e}"))?;
            if text.len() as u64 > MAX_FILE_BYTES {
                return Err(format!(
                    "{name} is not a profile: it has more than {MAX_FILE_BYTES} bytes"
                ));
            }
            return Self::parse(&text).map_err(|why| format!("{name}: {why}"));
        }
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        shipped.map_or_else(
            || {
                let names = Self::names().collect::<Vec<_>>().join(", ");
                let or_file = "or a file that ends in .json, without + or , in its name";
                Err(format!(
                    "there is no profile {name:?}: say {names} {or_file}"
                ))
            },
            |(_, text)| Self::parse(text),
        )
    }

    /// Parses a profile.
    ///
    /// # Errors
    /// One sentence about the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let profile: Self = parse_named(text).map_err(|e| format!("this is not a profile: {e}"))?;
        profile.check()?;
        Ok(profile)
    }

    /// Checks that the parameters are in their ranges.
    ///
    /// # Errors
    /// One sentence about the error.
    pub fn check(&self) -> Result<(), String> {
        let link = self.link.iter();
        let link = link.flat_map(|link| [link.to_device, link.from_device]);
        within(self.units, &UNITS, "units")
            .and_then(|()| within(self.clock_hz, &CLOCK_HZ, "clock_hz"))
            .and_then(|()| within(self.bus_bytes, &BUS_BYTES, "bus_bytes"))
            .and_then(|()| within(self.memory_bytes, &MEMORY_BYTES, "memory_bytes"))
            .and_then(|()| self.stages().iter().try_for_each(|stage| stage.check()))
            .and_then(|()| { link }.try_for_each(|speed| within(speed, &LINK, "link")))
            .and_then(|()| self.faults.check())
            .map_err(|why| format!("this profile is invalid: {why}"))
    }

    /// Returns the stages in the order of [`UNIT_STAGES`].
    fn stages(&self) -> [UnitStage; 4] {
        [self.decoder, self.transfer, self.merger, self.encoder]
    }

    /// Returns the speed of one unit for such pairs. The share `kept` of them (above 0, at most 1) is kept.
    pub fn unit_speed(&self, key_bytes: u32, value_bytes: u32, kept: f64) -> UnitSpeed {
        let stages = self.stage_speeds(f64::from(key_bytes), f64::from(value_bytes), kept);
        let (bottleneck, pairs_per_second) = UNIT_STAGES
            .into_iter()
            .zip(stages)
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or(("decoder", stages[0]));
        UnitSpeed {
            key_bytes,
            value_bytes,
            stages,
            pairs_per_second,
            bottleneck,
        }
    }

    /// Returns the input pairs per second of each stage, for keys and values of these mean sizes in bytes. The share
    /// `kept` of the pairs (at most 1) is kept.
    pub fn stage_speeds(&self, key_bytes: f64, value_bytes: f64, kept: f64) -> [f64; 4] {
        let speed = |stage: UnitStage| {
            let bytes = stage.key_passes * key_bytes + stage.value_passes * value_bytes;
            self.clock_hz / (stage.base_cycles + bytes / self.bus_bytes)
        };
        let [decoder, transfer, merger, encoder] = self.stages().map(speed);
        [decoder, transfer, merger, encoder / kept]
    }

    /// Returns the input pairs per second of the link, with both directions in parallel; `None` if there is no link.
    pub fn link_speed(&self, key_bytes: u32, value_bytes: u32, kept: f64) -> Option<f64> {
        let bytes = f64::from(key_bytes) + f64::from(value_bytes);
        let speed = |link: UnitLink| (link.to_device / bytes).min(link.from_device / bytes / kept);
        self.link.map(speed)
    }
}

impl UnitStage {
    fn check(&self) -> Result<(), String> {
        within(self.base_cycles, &BASE_CYCLES, "base_cycles")
            .and_then(|()| within(self.key_passes, &PASSES, "key_passes"))
            .and_then(|()| within(self.value_passes, &PASSES, "value_passes"))
    }
}

fn within<T: PartialOrd + Debug>(
    value: T,
    bounds: &RangeInclusive<T>,
    what: &str,
) -> Result<(), String> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let (least, most) = (bounds.start(), bounds.end());
    Err(format!(
        "its {what} is {value:?}; say {least:?} to {most:?}"
    ))
}

/// Parses a value. An error in a field begins with the field's name.
fn parse_named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut text = serde_json::Deserializer::from_str(text);
    let value =
        serde_path_to_error::deserialize(&mut text).map_err(|e| match e.path().iter().len() {
            0 => e.inner().to_string(),
            _ => e.to_string(),
        })?;
    text.end().map_err(|e| e.to_string())?;
    Ok(value)
}

/// Reads a file, but not much more than the maximum size.
fn read(name: &str) -> io::Result<String> {
    // Reading a pipe would block.
    if !fs::metadata(name)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let mut file = File::open(name)?.take(MAX_FILE_BYTES + 1);
    file.read_to_string(&mut text).map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> UnitProfile {
        UnitProfile::find("fpga-cu").expect("it ships")
    }

    /// Calculated by hand from the published parameters, at 200 MHz over 8 bytes: for 8 B/32 B the decoder takes 10 +
    /// 48/8 cycles, transfer 18 + 40/8, the merger 50 + 40/8 and the encoder 46 + 48/8.
    #[test]
    fn the_published_formulas_come_out() {
        for (key, value, cycles, bottleneck) in [
            (8, 32, [16.0, 23.0, 55.0, 52.0], "merger"),
            (16, 64, [22.0, 28.0, 60.0, 58.0], "merger"),
            (16, 128, [30.0, 36.0, 60.0, 66.0], "encoder"),
            (8, 1024, [140.0, 147.0, 55.0, 176.0], "encoder"),
            (64, 0, [26.0, 26.0, 90.0, 62.0], "merger"),
        ] {
            let speed = shipped().unit_speed(key, value, 1.0);
            for (pairs, cycles) in speed.stages.into_iter().zip(cycles) {
                assert!(
                    (pairs * cycles / 200e6 - 1.0).abs() < 1e-12,
                    "{key}x{value}"
                );
            }
            let least = cycles.into_iter().fold(0.0, f64::max);
            assert!((speed.pairs_per_second * least / 200e6 - 1.0).abs() < 1e-12);
            assert_eq!(speed.bottleneck, bottleneck, "{key}x{value}");
        }
    }

    /// According to the publication, key comparison is the bottleneck for short pairs, and data movement for long ones.
    #[test]
    fn what_is_dropped_need_not_be_encoded() {
        let half = shipped().unit_speed(8, 1024, 0.5);
        assert_eq!(half.bottleneck, "transfer");
        assert!(half.pairs_per_second > shipped().unit_speed(8, 1024, 1.0).pairs_per_second);
    }

    #[test]
    fn what_ships_can_be_read_and_written() {
        for name in UnitProfile::names() {
            let profile = UnitProfile::find(name).expect("it ships");
            let text = serde_json::to_string(&profile).expect("plain numbers");
            assert_eq!(UnitProfile::parse(&text), Ok(profile));
        }
        let near_data = UnitProfile::find("near-data-ssd").expect("it ships");
        assert_eq!(near_data.link_speed(16, 100, 1.0), None);
        assert_eq!(shipped().link_speed(8, 92, 0.5), Some(120e6));
        assert_eq!(shipped().link_speed(8, 92, 1.0), Some(120e6));
    }

    #[test]
    fn profiles_that_make_no_sense_are_refused_in_a_sentence() {
        let text = serde_json::to_string(&shipped()).expect("plain numbers");
        for (from, to, what) in [
            ("200000000.0", "0.0", "clock_hz"),
            ("200000000.0", "1e-300", "clock_hz is 1e-300"),
            ("200000000.0", "1e300", "clock_hz"),
            ("\"units\":8", "\"units\":0", "units"),
            (
                "\"units\":8",
                "\"units\":4000000000",
                "units is 4000000000; say 1 to 1024",
            ),
            ("\"bus_bytes\":8.0", "\"bus_bytes\":1e-9", "bus_bytes"),
            (
                "\"base_cycles\":18.0",
                "\"base_cycles\":1e18",
                "base_cycles",
            ),
            (
                "\"value_passes\":1.0",
                "\"value_passes\":1e9",
                "value_passes",
            ),
            ("units", "unit", "unknown field `unit`"),
            ("\"units\":8", "\"units\":\"8\"", ": units: invalid type"),
            (
                "\"base_cycles\":18.0",
                "\"base_cycles\":null",
                ": transfer.base_cycles: ",
            ),
            ("\"key_passes\":2.0", "\"key_passes\":-1", "key_passes"),
            ("12000000000.0", "0", "link"),
            ("12000000000.0", "1e-6", "link"),
            ("68719476736", "0", "memory_bytes"),
            ("68719476736", "18446744073709551615", "memory_bytes"),
            (",\"memory_bytes\":68719476736", "", "memory_bytes"),
            ("\"faults\":{}", "\"faults\":{\"hang\":1.5}", "hang is 1.5"),
            ("\"faults\":{}", "\"faults\":{\"hang\":-1}", "hang is -1"),
            (
                "\"faults\":{}",
                "\"faults\":{\"hang\":0.7,\"slow\":0.7}",
                "sum to 1.4",
            ),
            ("\"faults\":{}", "\"faults\":{\"rust\":0}", "`rust`"),
        ] {
            let broken = text.replacen(from, to, 1);
            assert_ne!(broken, text, "{from}");
            let why = UnitProfile::parse(&broken).expect_err(&broken);
            assert!(why.contains(what) && !why.contains('\n'), "{why}");
        }
        let find_refuses = |name: &str, what: &str| {
            let why = UnitProfile::find(name).expect_err(name);
            assert!(why.contains(what), "{why}");
        };
        find_refuses("fpga", "fpga-cu, near-data-ssd, mid-gpu");
        find_refuses("/nowhere/board.json", "/nowhere/board.json: ");
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("endless.json");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("there is room");
        let path = path.to_str().expect("a plain name");
        find_refuses(path, "not a regular file");
        std::fs::remove_file(path).expect("it is there");
        std::fs::write(path, [b' '; MAX_FILE_BYTES as usize + 1]).expect("there is room");
        find_refuses(path, "65536 bytes");
    }
}
