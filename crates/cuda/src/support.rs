//! What the stages leave to other backends.

use rockmill_core::{InputTable, OutputPlan, Request, Support, Unsupported};
use rockmill_format::compression::{CompressionSettings, CompressionType, Implementation};
use rockmill_format::properties::may_use_compression;

use crate::driver::ffi::Compression;

/// Whether the stages do what `request` asks for.
pub fn support(request: &Request<'_>) -> Support {
    if request.tables.iter().any(is_left_to_libraries) {
        return Support::No(Unsupported::CompressedInputs);
    }
    let refused = request.purpose.output_plan().and_then(unsupported_output);
    refused.map_or_else(|| request.support(), Support::No)
}

fn unsupported_output(plan: &OutputPlan) -> Option<Unsupported> {
    if compression(&plan.table.compression).is_none() {
        Some(Unsupported::Compression)
    } else if plan.splitting.size_is_upper_bound {
        Some(Unsupported::SizeIsUpperBound)
    } else {
        None
    }
}

/// Whether the blocks of a table have a compression that the stages do not undo: zlib, or one with a dictionary.
fn is_left_to_libraries(table: &InputTable) -> bool {
    let property = &table.meta.properties.compression_name;
    let has_zlib = may_use_compression(property, CompressionType::Zlib as u8);
    has_zlib || !table.meta.dictionary.is_empty()
}

/// How the stages compress data blocks; `None` if they do not do what the settings say.
pub fn compression(settings: &CompressionSettings) -> Option<Compression> {
    let codec = match (settings.kind, settings.implementation) {
        (CompressionType::None, _) => CompressionType::None,
        (_, Implementation::Library) => return None,
        (CompressionType::Snappy, Implementation::Rockmill1) => CompressionType::Snappy,
        (CompressionType::Lz4 | CompressionType::Lz4hc, Implementation::Rockmill1) => {
            CompressionType::Lz4
        }
        (_, Implementation::Rockmill1) => return None,
    };
    Some(Compression {
        codec: codec as u32,
        max_bytes_per_kb: settings.max_bytes_per_kb(),
    })
}
