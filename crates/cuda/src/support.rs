//! What the stages leave to other backends.

use rockmill_core::{OutputPlan, Purpose, Request, Support, Unsupported};
use rockmill_format::compression::{CompressionSettings, CompressionType, Implementation};

use crate::driver::ffi::Compression;
use crate::scan::Encoded;

/// Whether the stages do what `request` asks for.
pub fn support(request: &Request<'_>) -> Support {
    if let Purpose::Scan(plan) = request.purpose
        && Encoded::new(plan).is_none()
    {
        return Support::No(Unsupported::Purpose);
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

/// How the stages compress data blocks; `None` if they do not do what the settings say.
pub fn compression(settings: &CompressionSettings) -> Option<Compression> {
    let codec = match (settings.kind, settings.implementation) {
        (CompressionType::None, _) => CompressionType::None,
        (_, Implementation::Library) => return None,
        (CompressionType::Lz4hc, Implementation::Rockmill1) => CompressionType::Lz4,
        (kind, Implementation::Rockmill1) => kind,
    };
    Some(Compression {
        codec: codec as u32,
        max_bytes_per_kb: settings.max_bytes_per_kb(),
    })
}
