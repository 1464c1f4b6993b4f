//! Settings of a service's builder that complement the OPTIONS file, as arguments.

use rockmill::Builder;
use rockmill_compaction::Settings;

/// Facts about a database that its owner knows and OPTIONS do not contain.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceArgs {
    /// Bits per key of filter policies that the OPTIONS file names without them, as it does for every language binding
    /// [default: inferred from the files' own filters].
    #[arg(long, value_parser = parse_bits, value_name = "BITS")]
    filter_bits_per_key: Option<f64>,
    /// Transactions are WriteCommitted.
    #[arg(long)]
    pub write_committed: bool,
}

/// Parses a number of bits per key in RocksDB's range.
fn parse_bits(text: &str) -> Result<f64, String> {
    let bits = text
        .parse()
        .ok()
        .filter(|bits| (1.0..=100.0).contains(bits));
    bits.ok_or_else(|| "say a number from 1 to 100".to_owned())
}

impl ServiceArgs {
    /// Returns the given bits per key in thousandths.
    pub fn filter_millibits_per_key(&self) -> Option<u32> {
        self.filter_bits_per_key
            .map(|bits| (bits * 1e3).round() as u32)
    }

    /// Returns settings for an engine.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            write_committed: self.write_committed,
            ..Settings::default()
        };
        settings.hints.filter_millibits_per_key = self.filter_millibits_per_key();
        settings
    }

    /// Returns a builder for services.
    pub fn builder(&self) -> Builder {
        let mut builder = rockmill::Service::builder().min_job_bytes(0);
        if let Some(bits) = self.filter_bits_per_key {
            builder = builder.filter_bits_per_key(bits);
        }
        if self.write_committed {
            builder = builder.write_committed();
        }
        builder
    }
}
