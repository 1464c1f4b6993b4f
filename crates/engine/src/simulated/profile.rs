//! Profiles as settings name them.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use crate::model::UnitProfile;

/// A profile under its name. Settings are copied, so what was named once stays for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Profile(&'static Named);

#[derive(PartialEq)]
struct Named {
    name: String,
    parameters: UnitProfile,
}

static NAMED: Mutex<Vec<&'static Named>> = Mutex::new(Vec::new());

impl Profile {
    /// A profile of that name.
    ///
    /// # Errors
    /// One sentence about what is wrong with it.
    pub fn new(name: &str, parameters: UnitProfile) -> Result<Self, String> {
        parameters.check()?;
        let named = Named {
            name: name.to_owned(),
            parameters,
        };
        let mut all = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().copied().find(|known| **known == named);
        Ok(Self(known.unwrap_or_else(|| {
            let named: &'static Named = Box::leak(Box::new(named));
            all.push(named);
            named
        })))
    }

    /// Its name, or that of its file.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// What it says.
    pub fn parameters(self) -> &'static UnitProfile {
        &self.0.parameters
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Profile {}

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
