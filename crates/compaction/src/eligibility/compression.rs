//! The compression of the output (`compaction_picker.cc:GetCompressionType`, `GetCompressionOptions`).

use rockmill_core::{DeclineReason, Error, Job, Result};
use rockmill_format::compression::{
    CompressionSettings, CompressionType, Compressor, DictionarySettings, Implementation, Training,
    zstd_level,
};
use rockmill_format::options_file::{ColumnFamilyOptions, Options};
use rockmill_format::properties::CompressionOptions;

use super::{malformed, output_splitting};
use rockmill_snapshot::Findings;

const DISABLED: &str = "kDisableCompressionOption";
const DEFAULT: &str = "kLZ4Compression";

/// Finds settings under which the output would differ from the user's configuration.
pub fn check(job: &Job, family: &ColumnFamilyOptions, found: &mut Findings) {
    found.note(check_universal(job, &family.options));
    match configured(job, family) {
        Ok((kind, options)) => check_options(kind, &options, found),
        Err(error) => found.note(Err(error)),
    }
}

/// Returns the settings, and the text of the property `rocksdb.compression_options` in files of this RocksDB version.
pub fn choose(
    job: &Job,
    family: &ColumnFamilyOptions,
    rocksdb_version: [u32; 3],
) -> Result<(CompressionSettings, String)> {
    let (kind, options) = configured(job, family)?;
    let text = options.text(kind as u8, rocksdb_version);
    // RocksDB does not compress if no block could be small enough.
    let kind = match options.max_compressed_bytes_per_kb <= 0 {
        true => CompressionType::None,
        false => kind,
    };
    let takes_dictionary = CompressionSettings::takes_dictionary(kind, options.level);
    let settings = CompressionSettings {
        kind,
        implementation: Implementation::Library,
        level: options.level,
        window_bits: options.window_bits,
        zstd_checksum: options.checksum,
        max_compressed_bytes_per_kb: options.max_compressed_bytes_per_kb.max(0) as u32,
        dictionary: dictionary(kind, &options).filter(|_| takes_dictionary),
    };
    Compressor::new(&settings).map_err(|e| Error::declined(DeclineReason::Compression, e.what))?;
    Ok((settings, text))
}

/// Returns the type and the options for the output's level.
fn configured(
    job: &Job,
    family: &ColumnFamilyOptions,
) -> Result<(CompressionType, CompressionOptions)> {
    let cf = &family.options;
    let output_level = i64::from(job.info.output_level);
    let deepest = job
        .tree
        .levels
        .last()
        .map_or(0, |level| i64::from(level.level));
    let last = output_level >= deepest;
    let name = type_name(cf, output_level, last, job)?;
    let kind = CompressionType::from_option(&name).ok_or_else(|| {
        Error::declined(DeclineReason::Compression, format!("compression {name}"))
    })?;
    if leaves_some_uncompressed(cf)? && job.info.picked_compression == Some(NONE) {
        let options = cf.nested("compression_opts").map_err(malformed)?;
        return Ok((CompressionType::None, parse_options(&options)?));
    }
    let bottommost = cf
        .nested("bottommost_compression_opts")
        .map_err(malformed)?;
    let own = last && bottommost.bool("enabled", false).map_err(malformed)?;
    let options = if own {
        bottommost
    } else {
        cf.nested("compression_opts").map_err(malformed)?
    };
    Ok((kind, parse_options(&options)?))
}

/// `kNoCompression`.
const NONE: u8 = CompressionType::None as u8;

/// Whether RocksDB leaves some outputs uncompressed: in universal style with `compression_size_percent`, which depends on sizes
/// of runs that a service does not get.
fn leaves_some_uncompressed(cf: &Options) -> Result<bool> {
    let percent = compression_size_percent(cf)?;
    Ok(cf.str("compaction_style") == Some("kCompactionStyleUniversal") && percent >= 0)
}

fn compression_size_percent(cf: &Options) -> Result<i64> {
    let universal = cf
        .nested("compaction_options_universal")
        .map_err(malformed)?;
    universal
        .i64("compression_size_percent", -1)
        .map_err(malformed)
}

/// Declines the job if it needs what RocksDB has picked, and that is not known.
fn check_universal(job: &Job, cf: &Options) -> Result<()> {
    if leaves_some_uncompressed(cf)? && job.info.picked_compression.is_none() {
        let percent = compression_size_percent(cf)?;
        return Err(Error::declined(
            DeclineReason::Compression,
            format!("compression_size_percent is {percent}"),
        ));
    }
    Ok(())
}

fn type_name(cf: &Options, output_level: i64, last: bool, job: &Job) -> Result<String> {
    let bottommost = cf.str("bottommost_compression").unwrap_or(DISABLED);
    if last && bottommost != DISABLED {
        return Ok(bottommost.to_owned());
    }
    let per_level = cf.list("compression_per_level").map_err(malformed)?;
    let Some(deepest) = per_level.len().checked_sub(1) else {
        return Ok(cf.str("compression").unwrap_or(DEFAULT).to_owned());
    };
    let at = if output_level == 0 {
        0
    } else {
        let base = output_splitting::base_level(job, cf)?;
        usize::try_from(output_level - base + 1).unwrap_or(0)
    };
    Ok(per_level[at.min(deepest)].clone())
}

fn parse_options(from: &Options) -> Result<CompressionOptions> {
    let defaults = CompressionOptions::default();
    let int = |key: &str, default: i64| from.i64(key, default).map_err(malformed);
    let flag = |key: &str, default: bool| from.bool(key, default).map_err(malformed);
    let small = |key: &str, default: i32| -> Result<i32> {
        i32::try_from(int(key, i64::from(default))?)
            .map_err(|e| Error::declined(DeclineReason::OptionsFile, format!("{key}: {e}")))
    };
    let size = |key: &str, default: u64| from.u64(key, default).map_err(malformed);
    let size32 = |key: &str, default: u32| -> Result<u32> {
        u32::try_from(size(key, u64::from(default))?)
            .map_err(|e| Error::declined(DeclineReason::OptionsFile, format!("{key}: {e}")))
    };
    Ok(CompressionOptions {
        window_bits: small("window_bits", defaults.window_bits)?,
        level: small("level", defaults.level)?,
        strategy: small("strategy", defaults.strategy)?,
        max_dict_bytes: size32("max_dict_bytes", defaults.max_dict_bytes)?,
        zstd_max_train_bytes: size32("zstd_max_train_bytes", defaults.zstd_max_train_bytes)?,
        enabled: flag("enabled", defaults.enabled)?,
        max_dict_buffer_bytes: size("max_dict_buffer_bytes", defaults.max_dict_buffer_bytes)?,
        use_zstd_dict_trainer: flag("use_zstd_dict_trainer", defaults.use_zstd_dict_trainer)?,
        max_compressed_bytes_per_kb: small(
            "max_compressed_bytes_per_kb",
            defaults.max_compressed_bytes_per_kb,
        )?,
        auto_skip: flag("auto_skip", defaults.auto_skip)?,
        auto_skip_min_sample_every: small(
            "auto_skip_min_sample_every",
            defaults.auto_skip_min_sample_every,
        )?,
        checksum: flag("checksum", defaults.checksum)?,
    })
}

/// The dictionary that the options ask for.
fn dictionary(kind: CompressionType, options: &CompressionOptions) -> Option<DictionarySettings> {
    let max_buffer_bytes = match options.max_dict_buffer_bytes {
        0 => u64::MAX,
        bytes => bytes,
    };
    let max_bytes = options.max_dict_bytes as usize;
    let is_trained = kind == CompressionType::Zstd && options.zstd_max_train_bytes > 0;
    let training = is_trained.then(|| Training {
        max_sample_bytes: options.zstd_max_train_bytes as usize,
        level: (!options.use_zstd_dict_trainer).then(|| zstd_level(options.level)),
    });
    (max_bytes >= CompressionSettings::FEWEST_DICTIONARY_BYTES).then_some(DictionarySettings {
        max_bytes,
        max_buffer_bytes,
        training,
    })
}

fn check_options(kind: CompressionType, options: &CompressionOptions, found: &mut Findings) {
    let mut declined = |reason, what: String| found.note(Err(Error::declined(reason, what)));
    if kind == CompressionType::None {
        return;
    }
    // RocksDB makes none for Snappy.
    if options.max_dict_bytes > 0
        && kind != CompressionType::Snappy
        && !CompressionSettings::takes_dictionary(kind, options.level)
    {
        let what = format!("max_dict_bytes is {}", options.max_dict_bytes);
        declined(DeclineReason::CompressionDictionary, what);
    }
    if kind == CompressionType::Zlib && options.strategy != 0 {
        let what = format!("compression_opts.strategy is {}", options.strategy);
        declined(DeclineReason::Compression, what);
    }
    if options.auto_skip {
        let what = "compression_opts.auto_skip is on".to_owned();
        declined(DeclineReason::Compression, what);
    }
}
