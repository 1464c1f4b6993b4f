//! Profiles under their names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rockmill_core::DynBackend;
use rockmill_storage::clock::Clock;

use super::Simulated;
use crate::UnitProfile;

/// Makes a device with so much memory at most, in the time of a clock.
pub type Opener = dyn Fn(Option<u64>, &Arc<dyn Clock>) -> Arc<dyn DynBackend> + Send + Sync;

/// A profile under its name.
#[derive(Clone, PartialEq)]
pub struct Profile {
    name: String,
    parameters: UnitProfile,
}

impl Profile {
    /// A profile of that name.
    ///
    /// # Errors
    /// One sentence about what is wrong with it.
    pub fn new(name: &str, parameters: UnitProfile) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self {
            name: name.to_owned(),
            parameters,
        })
    }

    /// The profile that a device's text names, `sim:NAME` or `sim:FILE.json`; `None` of another device.
    pub fn of_device(text: &str) -> Option<Result<Self, String>> {
        text.strip_prefix("sim:").map(str::parse)
    }

    /// Its name, or that of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of a device that has it.
    pub fn device_name(&self) -> String {
        format!("sim:{}", self.name)
    }

    /// What it says.
    pub fn parameters(&self) -> &UnitProfile {
        &self.parameters
    }

    /// What makes such a device, with so much memory at most and in the time of a clock.
    pub fn opener(self) -> Box<Opener> {
        Box::new(move |memory_bytes, clock| {
            Arc::new(Simulated::new(&self, memory_bytes, Arc::clone(clock)))
        })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    /// A profile that ships, or that of a file; see [`UnitProfile::find`].
    fn from_str(name: &str) -> Result<Self, String> {
        Self::new(name, UnitProfile::find(name)?)
    }
}
