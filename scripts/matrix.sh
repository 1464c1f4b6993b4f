#!/usr/bin/env bash
# Lets a C++ program attach Rockmill to several versions of RocksDB, through include/rockmill/rocksdb.hpp:
#   scripts/matrix.sh FOLDER [VERSION..]
#
# Builds each version once, from the sources of the -sys crates, into FOLDER/CRATE_VERSION: some eleven minutes on two
# cores and 150 MB of disk each. The program has four writers, compacts, closes services under running jobs, and compares
# the content with that of a database without Rockmill. Another one is killed and its database opened again
# (crates/capi/tests/doors).
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/matrix.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/.."

export ROCKMILL_SKIPS
ROCKMILL_SKIPS=$(mktemp)
declare -A crates=([10.0.1]=0.35.0 [10.4.2]=0.38.0 [10.10.1]=0.42.0 [11.1.2]=0.47.0 [11.8.1]=0.48.1 [11.12.0]=0.49.0)
[ $# -gt 0 ] || set -- 10.0.1 10.4.2 10.10.1 11.1.2 11.8.1 11.12.0

failed=0
rows=()
for version in "$@"; do
    crate=${crates[$version]:?"no crate is known that contains RocksDB $version; known are ${!crates[*]}"}
    scripts/rocksdb.sh "$folder/$crate" "${CARGO_TARGET_DIR:-target}" "$crate"
    if ROCKMILL_TEST_ROCKSDB=$folder/$crate cargo test --locked --release -p rockmill-capi --test doors -- \
        --nocapture cpp_program && [ ! -s "$ROCKMILL_SKIPS" ]; then
        rows+=("$version passed")
    else
        rows+=("$version FAILED")
        failed=1
    fi
done
printf '%s\n' 'RocksDB result' "${rows[@]}" | column -t
exit $failed
