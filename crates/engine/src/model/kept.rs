//! Rates between two starts: a file in the user's cache folder, for one version and one machine.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::rates::Rates;

/// Grows whenever rates change their meaning.
const VERSION: u32 = 3;

/// No sound file is larger.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    machine: Machine,
    rates: Rates,
}

/// The version alone, whatever else a file of another version holds.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// Where this user's rates are kept: `rockmill/model.json` in `XDG_CACHE_HOME` or `~/.cache`. `None` if the
/// environment names neither.
pub fn usual_path() -> Option<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("rockmill").join("model.json"))
}

/// Reads the rates of `machine`; `None` if there is no file.
///
/// # Errors
/// One sentence about what makes the file unusable; then calibration has to run again.
pub fn load(path: &Path, machine: &Machine) -> Result<Option<Rates>, String> {
    let refuse = |why: String| format!("{}: {why}; calibration runs again", path.display());
    let size = match fs::metadata(path) {
        Ok(about) => about.len(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e.to_string())),
    };
    if size > MOST_BYTES {
        return Err(refuse(format!(
            "{size} bytes are too many for a calibration"
        )));
    }
    let text = fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    parse(&text, machine).map(Some).map_err(refuse)
}

fn parse(text: &str, machine: &Machine) -> Result<Rates, String> {
    let not_one = |e: serde_json::Error| format!("this is no calibration ({e})");
    let Version { version } = serde_json::from_str(text).map_err(not_one)?;
    if version != VERSION {
        return Err(format!(
            "the calibration has version {version} where this program has {VERSION}"
        ));
    }
    let kept: Kept = serde_json::from_str(text).map_err(not_one)?;
    if kept.machine != *machine {
        return Err(format!(
            "the calibration is another machine's ({}; this is {machine})",
            kept.machine
        ));
    }
    if !kept.rates.are_sound() {
        return Err("the calibration holds rates that no machine has".to_owned());
    }
    Ok(kept.rates)
}

/// Writes the rates of `machine`, all at once.
///
/// # Errors
/// Whatever the system says.
pub fn save(path: &Path, machine: &Machine, rates: &Rates) -> io::Result<()> {
    let kept = Kept {
        version: VERSION,
        machine: machine.clone(),
        rates: rates.clone(),
    };
    let text = serde_json::to_string_pretty(&kept)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Those that calibrate at the same time each have a file of their own, which goes if it cannot be renamed.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(text.as_bytes())?;
    draft.persist(path)?;
    Ok(())
}
