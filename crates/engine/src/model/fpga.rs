//! The published model of an FPGA compaction unit: X-Engine's, "FPGA-Accelerated Compactions for LSM-based Key-Value
//! Store" (FAST'20).
//!
//! A unit is a pipeline, so its slowest stage decides. A stage passes `f / (b + (A * key + value) / bus)` pairs a
//! second: base cycles, then the bytes of a pair over the bus, the key `A` times. The merger handles keys alone. Decoder,
//! transfer and merger see all pairs of the input, the encoder those that are left.

use serde::{Deserialize, Serialize};

/// The profile that ships: X-Engine's board, eight units of four ways at 200 MHz.
const FPGA_CU: &str = include_str!("profiles/fpga-cu.json");

/// Parameters of an accelerator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitProfile {
    /// Units that work side by side.
    pub units: u32,
    /// Cycles a second.
    pub clock_hz: f64,
    /// Bytes that a stage moves in a cycle.
    pub bus_bytes: f64,
    /// Decoder of the inputs' blocks.
    pub decoder: UnitStage,
    /// From decoder to key buffer and ring buffer.
    pub transfer: UnitStage,
    /// Comparison of keys.
    pub merger: UnitStage,
    /// Encoder of the output's blocks.
    pub encoder: UnitStage,
}

/// A stage of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitStage {
    /// Cycles for any pair.
    pub base_cycles: f64,
    /// How often a key passes the bus.
    pub key_passes: f64,
    /// How often a value does.
    pub value_passes: f64,
}

/// How fast a unit is for pairs of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UnitSpeed {
    /// Bytes of keys.
    pub key_bytes: u32,
    /// Bytes of values.
    pub value_bytes: u32,
    /// Pairs of input a second that each stage passes: decoder, transfer, merger, encoder.
    pub stages: [f64; 4],
    /// The least of them.
    pub pairs_per_second: f64,
    /// Whose that is.
    pub bottleneck: &'static str,
}

/// Names of the stages, in the order of [`UnitSpeed::stages`].
pub const UNIT_STAGES: [&str; 4] = ["decoder", "transfer", "merger", "encoder"];

impl UnitProfile {
    /// A profile that ships, by its name.
    ///
    /// # Errors
    /// One sentence with the names that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "fpga-cu" => Self::parse(FPGA_CU),
            _ => Err(format!("there is no profile {name:?}: say fpga-cu")),
        }
    }

    /// A profile from its text.
    ///
    /// # Errors
    /// One sentence about what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let profile: Self =
            serde_json::from_str(text).map_err(|e| format!("this is no profile: {e}"))?;
        match profile.is_sound() {
            true => Ok(profile),
            false => Err("a profile's units, clock, bus and cycles are above 0".to_owned()),
        }
    }

    fn is_sound(&self) -> bool {
        let stage = |stage: &UnitStage| {
            stage.base_cycles.is_normal()
                && stage.base_cycles > 0.0
                && [stage.key_passes, stage.value_passes]
                    .iter()
                    .all(|passes| passes.is_finite() && *passes >= 0.0)
        };
        let above_zero = |number: f64| number.is_normal() && number > 0.0;
        self.units > 0
            && above_zero(self.clock_hz)
            && above_zero(self.bus_bytes)
            && [self.decoder, self.transfer, self.merger, self.encoder]
                .iter()
                .all(stage)
    }

    /// How fast one unit is for such pairs, of which the share `kept` (above 0, at most 1) survives.
    pub fn unit_speed(&self, key_bytes: u32, value_bytes: u32, kept: f64) -> UnitSpeed {
        let (key, value) = (f64::from(key_bytes), f64::from(value_bytes));
        let speed = |stage: &UnitStage| {
            let bytes = stage.key_passes * key + stage.value_passes * value;
            self.clock_hz / (stage.base_cycles + bytes / self.bus_bytes)
        };
        let stages = [
            speed(&self.decoder),
            speed(&self.transfer),
            speed(&self.merger),
            speed(&self.encoder) / kept,
        ];
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> UnitProfile {
        UnitProfile::named("fpga-cu").expect("it ships")
    }

    /// By hand from the published parameters, at 200 MHz over 8 bytes: for 8 B/32 B the decoder takes
    /// 10 + 48/8 cycles, transfer 18 + 40/8, the merger 50 + 40/8 and the encoder 46 + 48/8.
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

    /// Published: a unit is bound by computing keys for short pairs, by moving bytes for long ones.
    #[test]
    fn what_is_dropped_need_not_be_encoded() {
        let half = shipped().unit_speed(8, 1024, 0.5);
        assert_eq!(half.bottleneck, "transfer");
        assert!(half.pairs_per_second > shipped().unit_speed(8, 1024, 1.0).pairs_per_second);
    }

    #[test]
    fn profiles_that_make_no_sense_are_refused_in_a_sentence() {
        let text = serde_json::to_string(&shipped()).expect("plain numbers");
        assert_eq!(UnitProfile::parse(&text), Ok(shipped()));
        for (from, to) in [
            ("200000000.0", "0.0"),
            ("\"units\":8", "\"units\":0"),
            ("units", "unit"),
        ] {
            let broken = text.replace(from, to);
            assert_ne!(broken, text, "{from}");
            assert!(UnitProfile::parse(&broken).is_err(), "{broken}");
        }
        let refused = UnitProfile::named("fpga").expect_err("no such profile");
        assert!(refused.contains("fpga-cu"), "{refused}");
    }
}
