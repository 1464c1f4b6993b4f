//! Named profiles.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rockmill_core::Backend;
use rockmill_storage::clock::Clock;

use super::Simulated;
use crate::UnitProfile;

/// Creates a device with at most that much memory, in the time of a clock.
pub type Opener = dyn Fn(Option<u64>, &Arc<dyn Clock>) -> Arc<dyn Backend> + Send + Sync;

/// A named profile.
#[derive(Clone, PartialEq)]
pub struct Profile {
    name: String,
    parameters: UnitProfile,
}

impl Profile {
    /// Creates a profile with that name.
    ///
    /// # Errors
    /// One sentence about the error.
    pub fn new(name: &str, parameters: UnitProfile) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self {
            name: name.to_owned(),
            parameters,
        })
    }

    /// Parses the name of a simulated device, `sim:NAME` or `sim:FILE.json`; `None` for other devices.
    pub fn of_device(text: &str) -> Option<Result<Self, String>> {
        text.strip_prefix("sim:").map(str::parse)
    }

    /// Name of the profile, or of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of a device with this profile.
    pub fn device_name(&self) -> String {
        format!("sim:{}", self.name)
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &UnitProfile {
        &self.parameters
    }

    /// Returns a function that creates such a device, with at most that much memory and in the time of a clock.
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

    /// Returns a built-in profile or reads one from a file; see [`UnitProfile::find`].
    fn from_str(name: &str) -> Result<Self, String> {
        Self::new(name, UnitProfile::find(name)?)
    }
}
