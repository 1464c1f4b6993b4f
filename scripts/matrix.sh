#!/usr/bin/env bash
# Lets C++ programs attach Rockmill to several versions of RocksDB, through include/rockmill/rocksdb.hpp:
#   scripts/matrix.sh [--json FILE | --messages] FOLDER [VERSION..]
#
# Builds each version once, from the sources of the -sys crates, into FOLDER/CRATE_VERSION: some eleven minutes on two
# cores and 150 MB of disk each. The programs are those of doors/capi/tests/doors: random histories with and without
# Rockmill, four writers, services that are closed under running jobs, no memory, and processes that are killed.
# ROCKMILL_CASES is the number of histories of each version; without it there are 40.
#
# RocksDB 11.8.1 is also tested with the crate rocksdb (doors/rockmill-rocksdb). Prints a table. FILE gets a line of
# JSON for each version, with the service's statistics over the histories.
#
# With --messages, it captures each version's messages and OPTIONS instead, into crates/format/tests/data/versions.
set -euo pipefail
json=/dev/null messages=
case "${1:-}" in
    --json)
        json=$(realpath -m "${2:?usage: scripts/matrix.sh --json FILE FOLDER [VERSION..]}")
        shift 2
        ;;
    --messages)
        messages=crates/format/tests/data/versions
        shift
        ;;
esac
folder=$(realpath -m "${1:?usage: scripts/matrix.sh [--json FILE | --messages] FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ROCKMILL_SKIPS=$work/skips ROCKMILL_CASES=${ROCKMILL_CASES:-40}
declare -A crates=([9.7.4]=0.29.0 [9.9.3]=0.31.0 [9.11.2]=0.34.0 [10.0.1]=0.35.0 [10.4.2]=0.38.0 [10.10.1]=0.42.0 [11.1.2]=0.47.0 [11.8.1]=0.48.1 [11.12.0]=0.49.0)
[ $# -gt 0 ] || set -- 10.0.1 10.4.2 10.10.1 11.1.2 11.8.1 11.12.0

failed=0
for version in "$@"; do
    crate=${crates[$version]:?"no crate is known that contains RocksDB $version; known are ${!crates[*]}"}
    scripts/rocksdb.sh "$folder/$crate" "${CARGO_TARGET_DIR:-target}" "$crate"
    : >"$ROCKMILL_SKIPS"
    export ROCKMILL_TEST_ROCKSDB=$folder/$crate
    if [ -n "$messages" ]; then
        rm -rf "${messages:?}/$version"
        mkdir -p "$messages/$version"
        ROCKMILL_TEST_MESSAGES=$PWD/$messages/$version cargo test --locked --release -p rockmill-capi --test doors -- \
            --ignored messages
        continue
    fi
    cargo test --locked --release -p rockmill-capi --test doors -- --nocapture cpp_program |
        tee "$work/output" || failed=1
    if [ "$version" = 11.8.1 ]; then
        ROCKSDB_LIB_DIR=$folder/$crate/lib ROCKSDB_INCLUDE_DIR=$folder/$crate/include ROCKSDB_STATIC=1 \
            cargo test --locked --release --manifest-path doors/rockmill-rocksdb/Cargo.toml \
            --target-dir "${CARGO_TARGET_DIR:-target}/rocksdb" --tests | tee -a "$work/output" || failed=1
    fi
    if [ -s "$ROCKMILL_SKIPS" ]; then failed=1; fi
    counts=$(awk '/^test result: / { passed += $4; failed += $6 }
        END { if (passed + failed) printf "\"passed\":%d,\"failed\":%d", passed, failed }' "$work/output")
    stats=$(sed -n 's/^{"rocksdb":"[0-9.]*",//p' "$work/output")
    skipped=$(wc -l <"$ROCKMILL_SKIPS")
    # Without these, the tests were not built, or one has failed.
    [ -n "$counts" ] || counts='"passed":0,"failed":1'
    [ -n "$stats" ] || stats='"histories":0,"stats":{}}'
    echo "{\"rocksdb\":\"$version\",$counts,\"skipped\":$skipped,$stats" >>"$work/lines"
done
[ -z "$messages" ] || exit 0
cp "$work/lines" "$json"
python3 - "$work/lines" <<'PYTHON'
import json, sys

versions = [json.loads(line) for line in open(sys.argv[1])]
rows = [("RocksDB", [v["rocksdb"] for v in versions])]
for name in "passed", "failed", "skipped":
    rows.append((f"tests {name}", [v[name] for v in versions]))
rows.append(("histories", [v["histories"] for v in versions]))
for name in "offered", "done", "failed", "declined":
    rows.append((f"jobs {name}", [v["stats"].get(f"jobs_{name}", "-") for v in versions]))
for reason in sorted({reason for v in versions for reason in v["stats"].get("jobs_declined_by_reason", {})}):
    rows.append((f"  {reason}", [v["stats"].get("jobs_declined_by_reason", {}).get(reason, 0) for v in versions]))
for name, values in rows:
    print(f"{name:<26}" + "".join(f"{value:>9}" for value in values))
PYTHON
exit $failed
