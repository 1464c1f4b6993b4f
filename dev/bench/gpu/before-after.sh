#!/usr/bin/env bash
# Compares two builds of Rockmill on one machine, in turn:
#   before-after.sh BEFORE AFTER OUT [--pairs N] [--percent P] [--devices LIST] [PART..]
#
#   compaction  16x256 and 8x32, uncompressed, in memory, on each device of LIST [cpu cuda:0]
#   scaling     several jobs at once (rockmill-bench system --experiment scaling)
#   contention  clients beside compactions on 4 cores (rockmill-bench system --experiment contention)
#
# BEFORE and AFTER are paths of `rockmill-bench`. Each of N pairs [5] runs BEFORE, then AFTER, at P percent of the entries [40].
# Writes OUT/PART-NAME-before-1.json and so on.
set -euo pipefail
before=${1:?} after=${2:?} out=${3:?}
shift 3
pairs=5 percent=40 devices='cpu cuda:0' parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --pairs | --percent | --devices) printf -v "${1#--}" '%s' "${2:?$1 needs a value}"; shift 2 ;;
        compaction | scaling | contention) parts+=("$1"); shift ;;
        *) echo "before-after: $1 is neither an option nor a part; see its first lines" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(compaction scaling contention)
mkdir -p "$out"
quiet() { "$@" 2>>"$out/log"; }
# Each name of a build with its path.
each() { "$1" before "$before" "${@:2}" && "$1" after "$after" "${@:2}"; }

compaction_of() {
    local name=$1 binary=$2 pair=$3 workload=$4 entries=$5
    quiet "$binary" compaction --dir /dev/shm --rocksdb no --no-compare --repeat 1 --memory-mib 16384 --json \
        --workload "$workload:none:$entries" --threads "$(nproc)" --device "${devices// /,}" \
        >"$out/compaction-$workload-$name-$pair.json"
}
system_of() {
    local name=$1 binary=$2 pair=$3 experiment=$4
    shift 4
    quiet "$@" "$binary" system --experiment "$experiment" --out "$out/$experiment-$name-$pair" --dir /dev/shm \
        --rocksdb no --scale "$((percent / 4))" --memory-mib 16384 --device "${devices// /,}" >>"$out/log"
}

for pair in $(seq "$pairs"); do
    for part in "${parts[@]}"; do
        case "$part" in
            compaction)
                each compaction_of "$pair" 16x256 "$((400000 * percent))"
                each compaction_of "$pair" 8x32 "$((480000 * percent))"
                ;;
            scaling) each system_of "$pair" scaling env ;;
            contention) each system_of "$pair" contention taskset -c 0-3 ;;
        esac
    done
done
