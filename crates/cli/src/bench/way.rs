//! Ways in which Rockmill's files go, of which several may be measured side by side.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use rockmill::{Device, DeviceList, OutputCache};

use crate::side_by_side::device::{GpuInput, Tuning};

/// How output is written, and how input gets to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub output_cache: OutputCache,
    /// As the settings say if nothing is said.
    pub gpu_input: Option<GpuInput>,
}

impl FromStr for Way {
    type Err = String;

    /// `bypass`, or `bypass/mapped`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (output_cache, input) = match text.split_once('/') {
            Some((output_cache, input)) => (output_cache, Some(input)),
            None => (text, None),
        };
        let gpu_input = input.map(|input| GpuInput::from_str(input, false));
        Ok(Self {
            output_cache: output_cache.parse()?,
            gpu_input: gpu_input.transpose()?,
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.output_cache.fmt(f)?;
        match self.gpu_input.and_then(|input| input.to_possible_value()) {
            Some(input) => write!(f, "/{}", input.get_name()),
            None => Ok(()),
        }
    }
}

impl Way {
    /// That of the settings.
    pub fn of(tuning: &Tuning) -> Self {
        Self {
            output_cache: tuning.output_cache,
            gpu_input: Some(tuning.gpu_input),
        }
    }

    /// The settings with this instead.
    pub fn apply(self, tuning: &Tuning) -> Tuning {
        let mut tuning = tuning.clone();
        tuning.output_cache = self.output_cache;
        tuning.gpu_input = self.gpu_input.unwrap_or(tuning.gpu_input);
        tuning
    }

    /// The ways of the settings and of `also` that differ on `device`, which need not have a GPU.
    pub fn all_on(device: DeviceList, tuning: &Tuning, also: &[Self]) -> Vec<Self> {
        let has_gpu = device
            .iter()
            .any(|device| matches!(device, Device::Cuda(_) | Device::Auto));
        let mut ways: Vec<Self> = Vec::new();
        for way in [Self::of(tuning)].iter().chain(also) {
            let gpu_input = way.gpu_input.or(Some(tuning.gpu_input));
            let way = Self {
                gpu_input: gpu_input.filter(|_| has_gpu),
                ..*way
            };
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_as_they_are_shown() {
        for text in ["database", "bypass", "database/mapped", "bypass/auto"] {
            let way: Way = text.parse().expect(text);
            assert_eq!(way.to_string(), text);
        }
        for text in ["", "mapped", "bypass/", "bypass/cached"] {
            assert!(text.parse::<Way>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_makes_no_difference_is_measured_once() {
        let also =
            ["bypass", "database/mapped", "bypass/mapped"].map(|way| way.parse().expect(way));
        let shown = |device: &str| -> Vec<String> {
            let device = device.parse().expect("a device");
            let ways = Way::all_on(device, &Tuning::default(), &also);
            ways.iter().map(Way::to_string).collect()
        };
        assert_eq!(shown("cpu"), ["database", "bypass"]);
        let all = [
            "database/read",
            "bypass/read",
            "database/mapped",
            "bypass/mapped",
        ];
        assert_eq!(shown("cuda:0"), all);
    }
}
