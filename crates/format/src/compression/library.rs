//! The linked libraries. Another version of one may compress to other bytes.

use super::CompressionType;

/// Version of the crate snap, which cannot be queried at run time. The workspace requires exactly this version.
const SNAP_VERSION: &str = "1.1.2";

/// Name of a compression, and the version of the library that is linked for it; `None` if blocks are stored
/// uncompressed.
pub fn name_and_version(kind: CompressionType) -> Option<(&'static str, String)> {
    Some(match kind {
        CompressionType::None => return None,
        CompressionType::Snappy => ("snappy", SNAP_VERSION.to_owned()),
        CompressionType::Zlib => ("zlib", rockmill_codec::zlib_version().to_owned()),
        CompressionType::Lz4 | CompressionType::Lz4hc => ("lz4", lz4_version()),
        CompressionType::Zstd => ("zstd", zstd::zstd_safe::version_string().to_owned()),
    })
}

/// The version as liblz4 writes it, from its number: two digits each for the last two parts.
fn lz4_version() -> String {
    const PART: i32 = 100;
    let number = lz4::version();
    let (major, minor) = (number / (PART * PART), number / PART % PART);
    format!("{major}.{minor}.{}", number % PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version of a package in Cargo.lock, and the text behind a plus.
    fn locked(package: &str) -> (&'static str, &'static str) {
        let lock = include_str!("../../../../Cargo.lock");
        let from = lock
            .split(&format!("name = \"{package}\"\nversion = \""))
            .nth(1);
        let version = from.and_then(|from| from.split('"').next());
        let version = version.expect("the package is there once");
        version.split_once('+').unwrap_or((version, ""))
    }

    #[test]
    fn versions_are_those_of_the_libraries_in_the_build() {
        let version = |kind| name_and_version(kind).expect("there is a library").1;
        assert_eq!(version(CompressionType::Snappy), locked("snap").0);
        let lz4 = version(CompressionType::Lz4);
        assert_eq!(format!("lz4-{lz4}"), locked("lz4-sys").1);
        assert_eq!(version(CompressionType::Lz4hc), lz4);
        let zstd = version(CompressionType::Zstd);
        assert_eq!(format!("zstd.{zstd}"), locked("zstd-sys").1);
        // The build uses the system's zlib if there is one.
        assert!(version(CompressionType::Zlib).starts_with("1."));
        assert_eq!(name_and_version(CompressionType::None), None);
    }
}
