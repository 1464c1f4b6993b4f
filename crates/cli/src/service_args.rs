//! What a service's builder is told beyond OPTIONS, as arguments.

use rockmill::Builder;
use rockmill_compaction::Settings;

/// The database's owner knows what OPTIONS do not say.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceArgs {
    /// Bits a key of filter policies that the OPTIONS file names without them, which is so for every
    /// binding [default: what the files' own filters tell].
    #[arg(long, value_parser = parse_bits, value_name = "BITS")]
    filter_bits_per_key: Option<f64>,
    /// Transactions are WriteCommitted.
    #[arg(long)]
    pub write_committed: bool,
}

/// What RocksDB takes for bits a key.
fn parse_bits(text: &str) -> Result<f64, String> {
    let bits = text
        .parse()
        .ok()
        .filter(|bits| (1.0..=100.0).contains(bits));
    bits.ok_or_else(|| "say a number from 1 to 100".to_owned())
}

impl ServiceArgs {
    /// Thousandths of a bit that filters have for each key, if they were said.
    pub fn filter_millibits_per_key(&self) -> Option<u32> {
        self.filter_bits_per_key
            .map(|bits| (bits * 1e3).round() as u32)
    }

    /// Settings of an engine.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            write_committed: self.write_committed,
            ..Settings::default()
        };
        settings.hints.filter_millibits_per_key = self.filter_millibits_per_key();
        settings
    }

    /// A builder of services.
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
