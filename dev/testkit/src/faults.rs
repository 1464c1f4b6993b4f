//! Faults of an accelerator and their rates.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Faults of a task on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No device memory is free for it.
    Allocation,
    /// A kernel does not start.
    Launch,
    /// The context breaks, and all calls fail until the driver has replaced it.
    Context,
    /// The call does not return.
    Hang,
    /// The task takes many times as long.
    Slow,
    /// The end of a file is missing after the copy back.
    Truncated,
    /// One bit of a file is inverted after the copy back.
    Flipped,
    /// A block has the wrong content, with a valid checksum.
    WrongResult,
}

impl Fault {
    /// All faults in the order of their definition.
    pub const ALL: [Self; 8] = [
        Self::Allocation,
        Self::Launch,
        Self::Context,
        Self::Hang,
        Self::Slow,
        Self::Truncated,
        Self::Flipped,
        Self::WrongResult,
    ];

    /// Name in profiles and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Launch => "launch",
            Self::Context => "context",
            Self::Hang => "hang",
            Self::Slow => "slow",
            Self::Truncated => "truncated",
            Self::Flipped => "flipped",
            Self::WrongResult => "wrong_result",
        }
    }

    /// Whether the fault damages files.
    pub fn damages(self) -> bool {
        matches!(self, Self::Truncated | Self::Flipped | Self::WrongResult)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Share of tasks that each fault affects; a task has at most one fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct FaultRates(BTreeMap<Fault, f64>);

impl<'de> Deserialize<'de> for FaultRates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EachOnce)
    }
}

/// Rejects a map with a repeated name, because it is ambiguous.
struct EachOnce;

impl<'de> Visitor<'de> for EachOnce {
    type Value = FaultRates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rates of faults by their names")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<FaultRates, M::Error> {
        let mut rates = BTreeMap::new();
        while let Some((fault, rate)) = map.next_entry::<Fault, f64>()? {
            if rates.insert(fault, rate).is_some() {
                return Err(M::Error::custom(format!("{fault} has two rates")));
            }
        }
        Ok(FaultRates(rates))
    }
}

impl FaultRates {
    /// Returns the fault of a task that drew `lot`, from 0 to below 1.
    pub fn draw(&self, lot: f64) -> Option<Fault> {
        let mut above = 0.0;
        let mut shares = self.0.iter();
        let met = shares.find(|(_, rate)| {
            above += **rate;
            lot < above
        });
        met.map(|(fault, _)| *fault)
    }

    /// Whether a fault with a rate above 0 damages files.
    pub fn damage(&self) -> bool {
        let mut shares = self.0.iter();
        shares.any(|(fault, rate)| fault.damages() && *rate > 0.0)
    }

    /// Checks that the rates are shares of one whole.
    ///
    /// # Errors
    /// One clause that names the fault.
    pub fn check(&self) -> Result<(), String> {
        for (fault, rate) in &self.0 {
            if !(0.0..=1.0).contains(rate) {
                return Err(format!("its rate of {fault} is {rate}; say 0 to 1"));
            }
        }
        match self.0.values().sum::<f64>() {
            sum if sum > 1.0 => Err(format!("its fault rates sum to {sum}; say 1 at most")),
            _ => Ok(()),
        }
    }
}

impl FromIterator<(Fault, f64)> for FaultRates {
    fn from_iter<I: IntoIterator<Item = (Fault, f64)>>(rates: I) -> Self {
        Self(rates.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_meets_its_share() {
        let rates = FaultRates::from_iter([(Fault::Launch, 0.25), (Fault::Hang, 0.5)]);
        assert_eq!(rates.check(), Ok(()));
        let met = [0.0, 0.2, 0.25, 0.7, 0.75, 0.99].map(|lot| rates.draw(lot));
        let (launch, hang) = (Some(Fault::Launch), Some(Fault::Hang));
        assert_eq!(met, [launch, launch, hang, hang, None, None]);
        assert_eq!(FaultRates::default().draw(0.0), None);
    }

    #[test]
    fn a_fault_has_one_rate() {
        let parse = serde_json::from_str::<FaultRates>;
        let rates = FaultRates::from_iter([(Fault::Hang, 0.5)]);
        assert_eq!(parse("{\"hang\": 0.5}").expect("it has one"), rates);
        let error = parse("{\"hang\": 0.5, \"hang\": 0.5}").expect_err("it has two");
        assert!(error.to_string().contains("hang has two rates"), "{error}");
    }

    #[test]
    fn names_are_those_of_profiles() {
        for fault in Fault::ALL {
            let text = serde_json::to_string(&fault).expect("a name");
            assert_eq!(text, format!("\"{fault}\""));
        }
    }
}
