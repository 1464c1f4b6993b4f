#!/usr/bin/env bash
# Makes the archive of recorded jobs anew (crates/compaction/tests/recorded_jobs); docs/internals/testing.md
# says when that is allowed:
#   scripts/recorded-jobs.sh             new jobs, made by RocksDB, and what the CPU makes of them
#   scripts/recorded-jobs.sh --outputs   the archive's jobs as they are, and what the CPU makes of them now
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in
    '')
        eval "$(make -s env)"
        jobs=$(mktemp -d)
        trap 'rm -rf "$jobs"' EXIT
        cargo run --locked --release -p rockmill-tests --bin record_jobs "$jobs"
        export ROCKMILL_RECORDED_JOBS=$jobs
        ;;
    --outputs) unset ROCKMILL_RECORDED_JOBS ;;
    *) echo "recorded-jobs: say nothing or --outputs" >&2; exit 2 ;;
esac
cargo test --locked --release -p rockmill-compaction --test gpu_tests -- --ignored --nocapture make_the_archive
