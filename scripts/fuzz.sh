#!/usr/bin/env bash
# Runs one fuzz target, on the pinned toolchain and without cargo-fuzz:
#   scripts/fuzz.sh TARGET SECONDS [libFuzzer options]   looks for inputs that fail
#   scripts/fuzz.sh TARGET INPUT                         runs one input again
#   scripts/fuzz.sh lint                                 clippy over the targets
# A run starts from fuzz/seeds/TARGET, keeps what it learns in fuzz/corpus/TARGET, and leaves an input
# that fails in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    echo "usage: scripts/fuzz.sh TARGET SECONDS|INPUT [libFuzzer options], or scripts/fuzz.sh lint;" \
        "targets: $(cd fuzz/fuzz_targets && printf '%s ' *.rs | sed 's/\.rs//g')" >&2
    exit 2
}

# The coverage passes that cargo-fuzz asks for, in the stable compiler's spelling. They go to the
# targets and what they link, not to build scripts, since a --target is given.
triple=$(rustc -vV | sed -n 's/^host: //p')
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Ccodegen-units=1
    --cfg=fuzzing
)
build="${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}"
build="${build:-fuzz/target}"
export RUSTFLAGS="${flags[*]}"
common=(--release --manifest-path fuzz/Cargo.toml --target "$triple" --target-dir "$build")

if [ "${1:-}" = lint ]; then
    exec cargo clippy "${common[@]}" --all-targets -- -D warnings
fi
if [ $# -lt 2 ] || [ ! -f "fuzz/fuzz_targets/$1.rs" ]; then
    usage
fi
target=$1
what=$2
shift 2
cargo build --quiet "${common[@]}" --bin "$target"
binary="$build/$triple/release/$target"

# An input may take 10 seconds and the process 2 GiB.
limits=(-timeout=10 -rss_limit_mb=2048)
if [ -f "$what" ]; then
    exec "$binary" "${limits[@]}" "$@" "$what"
fi
[[ "$what" =~ ^[0-9]+$ ]] || usage

# A block can rightly decompress to 128 KiB for each four of its bytes: inputs that hold compressed
# blocks stay short, so that the memory limit finds only what allocates too much.
case "$target" in
    sst_*) max_len=4096 ;;
    *) max_len=8192 ;;
esac
corpus=fuzz/corpus/$target
artifacts=fuzz/artifacts/$target
mkdir -p "$corpus" "$artifacts"
dirs=("$corpus")
[ ! -d "fuzz/seeds/$target" ] || dirs+=("fuzz/seeds/$target")
echo "fuzzing $target for $what seconds"
# libFuzzer's list of useful words at the end is noise here.
"$binary" -max_total_time="$what" -max_len="$max_len" -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$artifacts/" "${limits[@]}" "$@" "${dirs[@]}" 2>&1 |
    sed '/^###### Recommended dictionary/,/^###### End of recommended/d'
