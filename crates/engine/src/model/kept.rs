//! Rates between two starts: a file in the user's cache folder, for one version and one kind of host.
//!
//! Services of a host may each use other devices. Each takes from the file what is there of its own, and writes that
//! alone: of a device, and of the CPU, who writes last counts.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::machine::Host;
use super::rates::{CpuRates, GpuRates, Rates, StorageRates};

/// Grows whenever rates change their meaning.
const VERSION: u32 = 5;

/// No sound file is larger.
const MOST_BYTES: u64 = 1 << 20;

/// What each of a service's GPUs calls itself, by the names of their backends, `cuda:0`.
pub type GpuModels = BTreeMap<String, String>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    host: Host,
    cpu: CpuRates,
    storage: StorageRates,
    gpus: BTreeMap<String, KeptGpu>,
}

/// The rates of a GPU, as long as that is the one which has its number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptGpu {
    model: String,
    rates: GpuRates,
}

/// The version alone, whatever else a file of another version holds.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

impl Kept {
    fn rates(self, gpus: &GpuModels) -> Rates {
        let is_ours = |(name, gpu): &(String, KeptGpu)| gpus.get(name) == Some(&gpu.model);
        let ours = self.gpus.into_iter().filter(is_ours);
        Rates {
            cpu: self.cpu,
            storage: self.storage,
            gpus: ours.map(|(name, gpu)| (name, gpu.rates)).collect(),
        }
    }

    fn is_sound(&self) -> bool {
        let gpus = self.gpus.values().all(|gpu| gpu.rates.are_sound());
        gpus && self.cpu.are_sound() && self.storage.are_sound()
    }
}

/// Where this user's rates of `host` are kept: `rockmill/model-N.json` in `XDG_CACHE_HOME` or `~/.cache`, which hosts may
/// share: each kind has a number of its own. `None` if the environment names neither.
pub fn usual_path(host: &Host) -> Option<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    let name = format!("model-{:016x}.json", host.number());
    Some(cache.join("rockmill").join(name))
}

/// Reads the rates of `host` and of those of `gpus` that have some; `None` if there is no file.
///
/// # Errors
/// One sentence about what makes the file unusable; then calibration has to run again.
pub fn load(path: &Path, host: &Host, gpus: &GpuModels) -> Result<Option<Rates>, String> {
    Ok(read(path, host)?.map(|kept| kept.rates(gpus)))
}

fn read(path: &Path, host: &Host) -> Result<Option<Kept>, String> {
    let refuse = |why: String| format!("{}: {why}; calibration runs again", path.display());
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e.to_string())),
    };
    if !about.is_file() {
        return Err(refuse("it is no plain file".to_owned()));
    }
    let size = about.len();
    if size > MOST_BYTES {
        return Err(refuse(format!(
            "{size} bytes are too many for a calibration"
        )));
    }
    let text = fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    parse(&text, host).map(Some).map_err(refuse)
}

fn parse(text: &str, host: &Host) -> Result<Kept, String> {
    let not_one = |e: serde_json::Error| format!("this is no calibration ({e})");
    let Version { version } = serde_json::from_str(text).map_err(not_one)?;
    if version != VERSION {
        return Err(format!(
            "the calibration has version {version} where this program has {VERSION}"
        ));
    }
    let kept: Kept = serde_json::from_str(text).map_err(not_one)?;
    if kept.host != *host {
        return Err(format!(
            "the calibration is another machine's ({}; this is {host})",
            kept.host
        ));
    }
    if !kept.is_sound() {
        return Err("the calibration holds rates that no machine has".to_owned());
    }
    Ok(kept)
}

/// Writes the rates of `host` and of `gpus`, all at once; what is kept of other GPUs stays.
///
/// # Errors
/// Whatever the system says; WouldBlock if another process does not come to an end with the file; AlreadyExists if that is
/// no calibration of any version, and somebody has named it.
pub fn save(path: &Path, host: &Host, gpus: &GpuModels, rates: &Rates) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let _lock = lock(path)?;
    if usual_path(host).as_deref() != Some(path) && !makes_room(path)? {
        let what = "it is no calibration, and stays as it is; name another file";
        return Err(io::Error::new(ErrorKind::AlreadyExists, what));
    }
    // What is of no use to anybody makes room.
    let others = read(path, host).ok().flatten().map(|kept| kept.gpus);
    let ours = rates.gpus.iter().filter_map(|(name, rates)| {
        let (model, rates) = (gpus.get(name)?.clone(), rates.clone());
        Some((name.clone(), KeptGpu { model, rates }))
    });
    let kept = Kept {
        version: VERSION,
        host: host.clone(),
        cpu: rates.cpu.clone(),
        storage: rates.storage,
        gpus: others.into_iter().flatten().chain(ours).collect(),
    };
    let text = serde_json::to_string_pretty(&kept)?;
    // Who reads takes no lock: the file is the old one or the new one.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(text.as_bytes())?;
    draft.persist(path)?;
    Ok(())
}

/// Whether there is nothing at `path`, or a calibration of some version.
fn makes_room(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut text)?;
    Ok(text.is_empty() || serde_json::from_slice::<Version>(&text).is_ok())
}

/// Holds others off who write the file, until it is dropped.
fn lock(path: &Path) -> io::Result<File> {
    // A service that ends waits for it, and nobody needs it for longer than a moment.
    const PATIENCE: Duration = Duration::from_millis(100);
    const POLL: Duration = Duration::from_millis(1);
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::create(PathBuf::from(name))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(POLL),
            Err(error) => return Err(error.into()),
        }
    }
}
