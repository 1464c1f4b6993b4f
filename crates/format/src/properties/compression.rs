//! The two compression properties, which are text.

use std::fmt::Write;

use crate::versions::writes;

/// Name of the built-in compression manager.
const MANAGER: &str = "BuiltinV2";
/// From this format_version on, the property names the manager and lists types.
const FIRST_VERSION_WITH_MANAGER: u32 = 7;
const NO_COMPRESSION: u8 = 0;
const ZSTD: u8 = 7;
/// Types that custom compression managers may define (`kFirstCustomCompression` to
/// `kLastCustomCompression`).
const CUSTOM_TYPES: std::ops::RangeInclusive<u8> = 0x80..=0xfe;

/// The property `rocksdb.compression`
/// (`block_based_table_builder.cc:PrePopulateCompressionProperties`,
/// `PostPopulateCompressionProperties`).
///
/// `preferred` is the target block type of the configured compressor, or `None` if compression is off. For LZ4 and
/// LZ4HC the level decides between the two (1 and above: LZ4HC). `used` are the block types of the file in any order,
/// repeated or not, with or without "none".
///
/// format_version 7 and later: `BuiltinV2;04;`, with the types in hexadecimal. Earlier: a name such
/// as `LZ4`.
#[must_use]
pub fn compression_name(format_version: u32, preferred: Option<u8>, used: &[u8]) -> String {
    let mut types: Vec<u8> = used
        .iter()
        .copied()
        .filter(|&t| t != NO_COMPRESSION)
        .collect();
    types.sort_unstable();
    types.dedup();
    if format_version >= FIRST_VERSION_WITH_MANAGER {
        let manager = if preferred.is_some() { MANAGER } else { "" };
        let types: String = types.iter().map(|t| format!("{t:02X}")).collect();
        return format!("{manager};{types};");
    }
    let named = if types.contains(&ZSTD) {
        ZSTD
    } else {
        types
            .first()
            .copied()
            .or(preferred)
            .unwrap_or(NO_COMPRESSION)
    };
    type_name(named)
}

/// Whether a file whose property `rocksdb.compression` is `property` may have blocks of a type. Before format_version 7
/// it names only one type.
#[must_use]
pub fn may_use_compression(property: &[u8], compression_type: u8) -> bool {
    let property = String::from_utf8_lossy(property);
    match property.split(';').nth(1) {
        Some(types) => {
            let code = format!("{compression_type:02X}");
            types.as_bytes().chunks(2).any(|t| t == code.as_bytes())
        }
        None => property == type_name(compression_type),
    }
}

/// Whether the property `rocksdb.compression`, `property`, says that no block is compressed.
#[must_use]
pub fn is_uncompressed(property: &[u8]) -> bool {
    let property = String::from_utf8_lossy(property);
    match property.split(';').nth(1) {
        Some(types) => types.is_empty(),
        None => property == type_name(NO_COMPRESSION),
    }
}

/// Names of the possible block types of a file whose property `rocksdb.compression` is `property`, as in `LZ4+ZSTD`.
pub fn compression_types(property: &[u8]) -> String {
    let property = String::from_utf8_lossy(property);
    let Some(types) = property.split(';').nth(1) else {
        return property.into_owned();
    };
    let codes = types.as_bytes().chunks(2);
    let codes =
        codes.filter_map(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
    let names: Vec<_> = codes.map(type_name).collect();
    match names.is_empty() {
        true => type_name(NO_COMPRESSION),
        false => names.join("+"),
    }
}

/// RocksDB's name of a compression type's code (`util/compression.cc:CompressionTypeToString`).
pub fn type_name(compression_type: u8) -> String {
    let name = match compression_type {
        NO_COMPRESSION => "NoCompression",
        1 => "Snappy",
        2 => "Zlib",
        3 => "BZip2",
        4 => "LZ4",
        5 => "LZ4HC",
        6 => "Xpress",
        ZSTD => "ZSTD",
        u8::MAX => "DisableOption",
        custom if CUSTOM_TYPES.contains(&custom) => return format!("Custom{custom:02X}"),
        reserved => return format!("Reserved{reserved:02X}"),
    };
    name.to_owned()
}

/// The compression options that the property `rocksdb.compression_options` shows (`struct
/// CompressionOptions`); defaults are RocksDB's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are those of RocksDB's struct, which explains them"
)]
pub struct CompressionOptions {
    pub window_bits: i32,
    pub level: i32,
    pub strategy: i32,
    pub max_dict_bytes: u32,
    pub zstd_max_train_bytes: u32,
    pub enabled: bool,
    pub max_dict_buffer_bytes: u64,
    pub use_zstd_dict_trainer: bool,
    pub max_compressed_bytes_per_kb: i32,
    pub auto_skip: bool,
    pub auto_skip_min_sample_every: i32,
    pub checksum: bool,
}

impl Default for CompressionOptions {
    fn default() -> Self {
        Self {
            window_bits: -14,
            level: 32_767,
            strategy: 0,
            max_dict_bytes: 0,
            zstd_max_train_bytes: 0,
            enabled: false,
            max_dict_buffer_bytes: 0,
            use_zstd_dict_trainer: true,
            max_compressed_bytes_per_kb: 896,
            auto_skip: false,
            auto_skip_min_sample_every: 0,
            checksum: false,
        }
    }
}

impl CompressionOptions {
    /// The property `rocksdb.compression_options` of a file for which `configured_type` was
    /// configured and no custom compression manager
    /// (`util/compression.cc:CompressionOptionsToString`, `block_based_table_builder.cc:Rep::Rep`).
    ///
    /// With type 0 there is no compressor and RocksDB shows `auto_skip` as off. Versions before 11.8 show less; zeros
    /// stand for 11.12.
    #[must_use]
    pub fn text(&self, configured_type: u8, rocksdb_version: [u32; 3]) -> String {
        let mut text = String::new();
        let mut put = |name: &str, value: i128| {
            if writes(|release| release.compression_options, name, rocksdb_version) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{name}={value}; ");
            }
        };
        put("window_bits", self.window_bits.into());
        put("level", self.level.into());
        put("strategy", self.strategy.into());
        put("max_dict_bytes", self.max_dict_bytes.into());
        put("zstd_max_train_bytes", self.zstd_max_train_bytes.into());
        put("enabled", self.enabled.into());
        put("max_dict_buffer_bytes", self.max_dict_buffer_bytes.into());
        put("use_zstd_dict_trainer", self.use_zstd_dict_trainer.into());
        put(
            "max_compressed_bytes_per_kb",
            self.max_compressed_bytes_per_kb.into(),
        );
        if self.auto_skip && configured_type != NO_COMPRESSION {
            put("auto_skip", 1);
            put(
                "auto_skip_min_sample_every",
                self.auto_skip_min_sample_every.into(),
            );
        }
        put("checksum", self.checksum.into());
        put("_type", configured_type.into());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_use_the_types_that_its_property_names() {
        const ZLIB: u8 = 2;
        for version in [2, FIRST_VERSION_WITH_MANAGER] {
            for (used, expected) in [(&[ZLIB][..], true), (&[0x22, 1], false), (&[], false)] {
                let name = compression_name(version, Some(1), used);
                assert_eq!(
                    may_use_compression(name.as_bytes(), ZLIB),
                    expected,
                    "{name}"
                );
            }
        }
        for version in [2, FIRST_VERSION_WITH_MANAGER] {
            assert!(is_uncompressed(
                compression_name(version, None, &[0]).as_bytes()
            ));
            let lz4 = compression_name(version, Some(4), &[0, 4]);
            assert!(!is_uncompressed(lz4.as_bytes()), "{lz4}");
        }
        let two = compression_name(FIRST_VERSION_WITH_MANAGER, Some(4), &[4, ZLIB]);
        assert!(may_use_compression(two.as_bytes(), ZLIB), "{two}");
    }
}
