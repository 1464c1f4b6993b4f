//! What the stages leave to other backends.

use rockmill_core::{InputTable, OutputPlan, Request, Support, Unsupported};
use rockmill_format::compression::Compressor;

/// Whether the stages do what `request` asks for.
pub fn support(request: &Request<'_>) -> Support {
    let is_compressed = |input: &InputTable| {
        let properties = &input.meta.properties;
        // Before trailers.
        properties.uncompressed_data_size > properties.data_size
    };
    if request.tables.iter().any(is_compressed) {
        return Support::No(Unsupported::CompressedInputs);
    }
    let refused = request.purpose.output_plan().and_then(unsupported_output);
    refused.map_or_else(|| request.support(), Support::No)
}

fn unsupported_output(plan: &OutputPlan) -> Option<Unsupported> {
    let stored = Compressor::new(&plan.table.compression).is_ok_and(|c| c.is_stored());
    if !stored {
        Some(Unsupported::Compression)
    } else if plan.splitting.size_is_upper_bound {
        Some(Unsupported::SizeIsUpperBound)
    } else {
        None
    }
}
