//! Requests that the stages leave to other backends.

use rockmill_core::{OutputPlan, Purpose, Request, Support, Unsupported, Visibility};
use rockmill_format::compression::{CompressionSettings, CompressionType, DEFAULT_LEVEL};
use rockmill_format::key::KeyOrder;

use crate::driver::ffi::Compression;
use crate::scan::Encodings;

/// Whether the stages support `request`.
pub fn support(request: &Request<'_>, encodings: &Encodings) -> Support {
    if let Purpose::Scan(plan) = request.purpose
        && encodings.of(plan).is_none()
    {
        return Support::No(Unsupported::Purpose);
    }
    if request
        .tables
        .iter()
        .any(|table| table.meta.footer.guard.is_legacy)
    {
        return Support::No(Unsupported::OldTable);
    }
    // A range without tables may have tombstones.
    let is_reverse = match request.visibility {
        Visibility::Compaction(rules) => rules.order != KeyOrder::Bytewise,
        Visibility::Snapshot(_) => false,
    };
    let mut tables = request.tables.iter();
    if is_reverse || tables.any(|table| table.order() != KeyOrder::Bytewise) {
        return Support::No(Unsupported::Comparator);
    }
    if let Visibility::Compaction(rules) = request.visibility
        && rules.has_plugins()
    {
        return Support::No(Unsupported::Plugins);
    }
    let refused = request.purpose.output_plan().and_then(unsupported_output);
    refused.map_or_else(|| request.support(), Support::No)
}

fn unsupported_output(plan: &OutputPlan) -> Option<Unsupported> {
    if compression(&plan.table.compression).is_none() {
        Some(Unsupported::Compression)
    } else if plan.table.index.partitions.is_some() {
        Some(Unsupported::Partitions)
    } else if plan.splitting.size_is_upper_bound {
        Some(Unsupported::SizeIsUpperBound)
    } else if !plan.collectors.is_empty() || plan.table.prefixes.is_some() {
        Some(Unsupported::Plugins)
    } else {
        None
    }
}

/// How the stages compress data blocks; `None` for unsupported settings. If a library compresses, threads of the host
/// run it, and the device has a limit of 0 bytes: it stores all blocks uncompressed until then.
pub fn compression(settings: &CompressionSettings) -> Option<Compression> {
    /// Above this level, ZSTD takes so long that the other stages do not matter (docs/decisions/compression.md).
    const MAX_ZSTD_LEVEL: i32 = 12;
    let is_slow = settings.kind == CompressionType::Zstd
        && settings.level != DEFAULT_LEVEL
        && settings.level > MAX_ZSTD_LEVEL;
    let codec = match settings.kind {
        _ if settings.dictionary.is_some() => return None,
        // The device decompresses the blocks that it verifies, and has no decoder for zlib.
        CompressionType::Zlib => return None,
        _ if settings.is_by_library() && is_slow => return None,
        CompressionType::None => CompressionType::None,
        _ if settings.is_by_library() => CompressionType::Lz4,
        CompressionType::Lz4hc => CompressionType::Lz4,
        kind => kind,
    };
    Some(Compression {
        codec: codec as u32,
        max_bytes_per_kb: match settings.is_by_library() {
            true => 0,
            false => settings.max_bytes_per_kb(),
        },
    })
}
