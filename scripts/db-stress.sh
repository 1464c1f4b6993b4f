#!/usr/bin/env bash
# Runs RocksDB's own stress test, db_stress, with Rockmill attached through include/rockmill/rocksdb.hpp:
#   scripts/db-stress.sh FOLDER SECONDS [VERSION..]
#
# RocksDB's crash test draws options, runs db_stress with them, kills it, and has the next run verify each value against
# what was written. Compiles each version once, from the sources of the crate librocksdb-sys, into FOLDER/VERSION: some 25
# minutes on two cores. Needs cmake, ninja and gflags (scripts/setup.sh stress).
#
# Prints the jobs of each version that Rockmill did, and those that it declined, by reason. The exit code is 1 if a run
# found a difference, or if Rockmill did nothing. FOLDER/VERSION then has the database in `run`, and the output in `log`.
set -euo pipefail
declare -A crates=([7.9.2]=0.10.0 [8.10.0]=0.16.0)
misused() {
    echo "$1; usage: scripts/db-stress.sh FOLDER SECONDS [VERSION..]; versions: ${!crates[*]}" >&2
    exit 2
}
[ $# -ge 2 ] || misused "a folder and a number of seconds are needed"
[[ $2 =~ ^[1-9][0-9]*$ ]] || misused "$2 is no number of seconds"
folder=$(realpath -m "$1") seconds=$2
shift 2
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 7.9.2 8.10.0
for version; do
    [ -n "${crates[$version]:-}" ] || misused "no crate is known that contains RocksDB $version"
done
mkdir -p "$folder/lib"
cp "${CARGO_TARGET_DIR:-target}/release/deps/librockmill_capi.so" "$folder/lib/librockmill.so.2"

compile() {
    [ ! -x "$folder/$1/build/db_stress_tool/db_stress" ] || return 0
    local crate=${crates[$1]} sources
    mkdir -p "$folder/$1/crate/src"
    : >"$folder/$1/crate/src/lib.rs"
    cat >"$folder/$1/crate/Cargo.toml" <<TOML
[package]
name = "sources"
version = "0.0.0"
[dependencies]
librocksdb-sys = "=$crate"
[workspace]
TOML
    sources=$(cargo metadata --format-version 1 --manifest-path "$folder/$1/crate/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*librocksdb-sys[^"]*"' | head -n 1 | cut -d '"' -f 4)
    rm -rf "$folder/$1/rocksdb"
    cp -r "$(dirname "$sources")/rocksdb" "$folder/$1/rocksdb"
    # Behind the line that sets the test's own listeners.
    sed -i -e '/^void StressTest::Open(/,/^}/s/^    RegisterAdditionalListeners();$/&\n    AttachRockmill(\&options_, FLAGS_use_txn ? static_cast<int>(FLAGS_txn_write_policy) : -1);/' \
        -e '0,/^#include/s//#include "stress\/attach.hpp"\n&/' "$folder/$1/rocksdb/db_stress_tool/db_stress_test_base.cc"
    grep -q AttachRockmill "$folder/$1/rocksdb/db_stress_tool/db_stress_test_base.cc"
    cmake -S "$folder/$1/rocksdb" -B "$folder/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CXX_FLAGS="-include cstdint -w -I$PWD/include -I$PWD/tests" \
        -DCMAKE_CXX_STANDARD_LIBRARIES="$folder/lib/librockmill.so.2 -Wl,-rpath,$folder/lib" \
        -DWITH_GFLAGS=1 -DWITH_TESTS=0 -DWITH_BENCHMARK_TOOLS=0 -DROCKSDB_BUILD_SHARED=0 -DPORTABLE=1 -DUSE_RTTI=1 >&2
    ninja -C "$folder/$1/build" db_stress >&2
}

# Release builds inject no faults of reading, and these have no libraries of compression. Small files make compactions many.
# Jobs with checksums of files are declined before 9.7.3, and those with times of sequence numbers always.
options=(--read_fault_one_in=0 --compression_type=none --bottommost_compression_type=none --blob_compression_type=none
    --wal_compression=none --file_checksum_impl=none --preserve_internal_time_seconds=0 --max_key=100000
    --write_buffer_size=1048576 --target_file_size_base=524288 --max_bytes_for_level_base=2097152)
failed=0
for version; do
    compile "$version"
    run=$folder/$version/run
    rm -rf "$run"
    mkdir -p "$run/statistics"
    if ! TEST_TMPDIR=$run ROCKMILL_STATISTICS=$run/statistics \
        python3 "$folder/$version/rocksdb/tools/db_crashtest.py" blackbox --simple --duration="$seconds" --interval=60 \
        --stress_cmd="$folder/$version/build/db_stress_tool/db_stress" "${options[@]}" >"$folder/$version/log" 2>&1; then
        failed=1
        echo "db-stress: $version has failed; see $folder/$version/log" >&2
    fi
    python3 - "$version" "$run/statistics" <<'PYTHON' || failed=1
import collections, json, pathlib, sys

version, folder = sys.argv[1:]
counts, reasons, databases = collections.Counter(), collections.Counter(), 0
for path in pathlib.Path(folder).glob("*.[0-9]*"):
    stats = json.loads(path.read_text()) if path.suffix != ".next" else {}
    databases += bool(stats)
    counts.update({name: stats.get(name, 0) for name in ("refused", "jobs_offered", "jobs_done", "jobs_failed", "jobs_declined")})
    reasons.update(stats.get("jobs_declined_by_reason", {}))
said = ", ".join(f"{count} {name.removeprefix('jobs_')}" for name, count in counts.items())
print(f"{version}: {databases} databases; {said}; declined: {dict(reasons.most_common())}")
sys.exit(counts["jobs_done"] == 0)
PYTHON
done
exit $failed
