#!/usr/bin/env bash
# Builds librockmill_attach.so beside librockmill.so:
#   doors/attach/build.sh FOLDER [BUILT]     makes FOLDER/lib and FOLDER/include; BUILT holds librockmill_capi.so
set -euo pipefail
folder=$(realpath -m "${1:?usage: doors/attach/build.sh FOLDER [BUILT]}")
built=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/../.."
built=${built:-${CARGO_TARGET_DIR:-target}/release}
[ -f "$built/librockmill_capi.so" ] || {
    echo "doors/attach: $built has no librockmill_capi.so; run make build first" >&2
    exit 3
}
mkdir -p "$folder/lib" "$folder/include/rockmill"
strip -o "$folder/lib/librockmill.so.2" "$built/librockmill_capi.so"
ln -sf librockmill.so.2 "$folder/lib/librockmill.so"
cp include/rockmill.h "$folder/include/"
cp include/rockmill/attach.h "$folder/include/rockmill/"
doors/attach/compile.sh "$folder/lib"
