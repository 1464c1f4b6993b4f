//! The device that Rockmill computes on, and the settings for it.

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use rockmill::{Builder, DeviceList, FilterDecision, OutputCache, Service, Verification};
use rockmill_compaction::MutableSettings;
use rockmill_terminal::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::spec::{BLOOM_BITS_PER_KEY, KEEPING_FILTER};

/// Settings of measured services; the same for all measurements of a command.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct Tuning {
    /// Maximum host memory in MiB of Rockmill's jobs.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory_mib: u64,
    /// Maximum MiB per second that Rockmill reads and writes [default: no limit].
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(..=1_048_576))]
    io_mib_per_s: u64,
    /// How thoroughly Rockmill checks its output: default, sampled, sampled:N or full.
    #[arg(long, default_value_t = Verification::Default, value_name = "LEVEL")]
    #[serde(with = "text")]
    verification: Verification,
    /// Whether Rockmill's output goes through the page cache: database (as the database's options say) or bypass.
    #[arg(long, default_value_t = OutputCache::Database, value_name = "database|bypass")]
    #[serde(with = "text")]
    pub output_cache: OutputCache,
    /// Whether a GPU may compress with Rockmill's own code. Without it, libraries on the host compress.
    #[arg(long, value_name = "yes|no", default_value = "yes", action = ArgAction::Set,
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    pub device_compression: bool,
    /// MiB of GPU memory for files that stay there; 0 caches nothing [default: 0].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..=1_048_576))]
    device_cache_mib: Option<u64>,
    /// Niceness of Rockmill's threads relative to RocksDB's.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=19))]
    nice: u8,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            memory_mib: MutableSettings::default().memory_budget_bytes >> 20,
            io_mib_per_s: 0,
            verification: Verification::Default,
            output_cache: OutputCache::Database,
            device_compression: true,
            device_cache_mib: None,
            nice: 0,
        }
    }
}

impl Tuning {
    /// Returns the same settings with another output cache.
    pub fn with(&self, output_cache: OutputCache) -> Self {
        Self {
            output_cache,
            ..self.clone()
        }
    }

    /// Bytes of files that GPUs cache, if stated.
    pub fn device_cache_bytes(&self) -> Option<u64> {
        self.device_cache_mib.map(|mib| mib << 20)
    }

    /// Returns the same settings with another cache of files on GPUs.
    pub fn with_device_cache(&self, bytes: u64) -> Self {
        Self {
            device_cache_mib: Some(bytes.div_ceil(1 << 20)),
            ..self.clone()
        }
    }

    /// Maximum host memory in bytes of Rockmill's jobs.
    pub fn budget_bytes(&self) -> u64 {
        self.memory_mib << 20
    }
}

/// Serializes values as text for another process.
pub mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a value as text.
    ///
    /// # Errors
    /// The errors of `to`.
    pub fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    /// Parses a value from text.
    ///
    /// # Errors
    /// The errors of `from`; an error for text that is not a value.
    pub fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Prints the choice of `auto` to standard error.
pub fn tell(choice: Option<&str>) {
    if let Some(choice) = choice {
        eprintln!("rockmill: device auto: {choice}");
    }
}

/// Jobs that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// The jobs that it would accept from a user's database.
    Usual,
    /// All jobs, including small ones.
    All,
}

/// Sets the devices of a service's builder.
pub type GiveDevices = fn(Builder, DeviceList) -> Builder;

/// Creates a service for devices, and prints the choice of `auto`.
///
/// # Errors
/// Environment if one of them cannot be used, Usage if a setting is invalid.
pub fn service(
    device: DeviceList,
    threads: u32,
    tuning: &Tuning,
    jobs: Jobs,
    give: GiveDevices,
) -> Result<Service, Failure> {
    let mut builder = Service::builder();
    if jobs == Jobs::All {
        builder = builder.min_job_bytes(0);
    }
    builder = builder.device_cache_bytes(tuning.device_cache_bytes().unwrap_or(0));
    let built = give(builder, device)
        .threads(threads as usize)
        .io_bytes_per_second(tuning.io_mib_per_s << 20)
        .memory_budget_bytes(tuning.budget_bytes())
        .verification(tuning.verification)
        .output_cache(tuning.output_cache)
        .device_compression(tuning.device_compression)
        .nice(tuning.nice)
        .filter_bits_per_key(BLOOM_BITS_PER_KEY)
        // Only a database with operands has a merge operator.
        .merge_operator("uint64add")
        .compaction_filter(KEEPING_FILTER, |_| {
            Some(Box::new(|_: &[u8], _: &[u8]| FilterDecision::Keep))
        })
        .build();
    let service = built.map_err(|e| Failure::Usage(e.to_string()))?;
    let opened = service.wait_for_device();
    opened.map_err(|e| Failure::Environment(e.to_string()))?;
    tell(service.device_choice());
    Ok(service)
}
