//! The spans of jobs and subcompactions for the process's `tracing` subscriber.

use std::path::Path;

use rockmill_core::{Job, JobInfo, TaskReport};
use rockmill_format::wire::CompactionServiceInput;
use tracing::Span;
use tracing::field::Empty;

use crate::outcome::Outcome;

/// Creates the span of a job, before its message is read.
pub fn job(job: &Job, dir: &Path) -> Span {
    let info = &job.info;
    tracing::info_span!(
        "job",
        database = %dir.display(),
        column_family = Empty,
        output_level = info.output_level,
        log_job = JobInfo::log_number(info.job_id),
        session = job.identity.session_id,
        inputs = job.tree.inputs.len(),
        device = Empty,
        subcompactions = Empty,
        files = Empty,
    )
}

/// Adds fields of the job's message to its span.
pub fn eligible(span: &Span, input: &CompactionServiceInput) {
    let name = rockmill_format::names::escape(&input.cf_name);
    span.record("column_family", name.as_str());
}

/// Adds the result of a job to its span.
pub fn job_done(span: &Span, outcome: &Outcome) {
    span.record("device", outcome.device.as_str());
    span.record("subcompactions", outcome.subcompactions);
    span.record("files", outcome.files.len());
}

/// Creates the span of a subcompaction with `bytes` bytes of input. It is a child of its job's span, which may belong
/// to another thread.
pub fn subcompaction(job: &Span, index: usize, device: &str, bytes: u64) -> Span {
    tracing::info_span!(
        parent: job,
        "subcompaction",
        index,
        device,
        bytes,
        entries_in = Empty,
        entries_out = Empty,
        files = Empty,
    )
}

/// Adds the result of a subcompaction to its span.
pub fn subcompaction_done(span: &Span, report: &TaskReport) {
    span.record("entries_in", report.read.entries.iter().sum::<u64>());
    span.record("entries_out", report.read.rows());
    span.record("files", report.files().len());
}
