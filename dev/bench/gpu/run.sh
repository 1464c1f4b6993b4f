#!/usr/bin/env bash
# Tests and measures on a GPU what scripts/gpu-bundle.sh has put beside this file:
#   run.sh [OPTION..] [SECTION..]
#
#   tests            the device tests and the recorded jobs, on the GPU, and the tests of block checksums in the form
#                    that the processors have
#   sanitize         a few of their cases under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
#   bench            RocksDB, the CPU and the GPU side by side, in memory and on a disk
#   compressed       the same for LZ4, Snappy and ZSTD, in memory
#   host_compression the same with libraries on the host beside the GPU, and for LZ4HC
#   scan             queries over TPC-H and YCSB, through RocksDB's iterators, on the CPU and on the GPU; from a bundle
#                    that scripts/gpu-bundle.sh --for scan has made
#   sql              SQL logic tests and random queries, from a bundle that scripts/gpu-bundle.sh --for sql has made
#   share            compactions, SQL and views at the same time, each beside its rate alone, from a bundle that
#                    scripts/gpu-bundle.sh --for share has made
#   gpukv            views in device memory beside what users do today; from a bundle that scripts/gpu-bundle.sh --for view
#                    has made
#   small            the same for jobs of 1 MB to 256 MB, uncompressed and with LZ4 and ZSTD
#   disk             output through the page cache and past it, beside what the disk takes by itself
#   paranoid         what paranoid_file_checks costs
#   kill             processes that compact on the GPU are killed with SIGKILL, and their databases checked
#                    (kill.json)
#   subcompactions   sizes of subcompactions, and how many at once
#   system           whole systems under load; goes on where an earlier call with the same --out has stopped
#
# Without sections: tests, sanitize and bench. Options:
#   --out DIR          logs and JSON [results]
#   --device NAME      cuda:N [cuda:0]
#   --cases N          random jobs for the tests [1000], and --sanitize-cases N under compute-sanitizer [12]
#   --kills N          processes to kill [200], --kill-processes N at a time [4], from --kill-seed N on [1], in --disk-dir
#   --memory-dir DIR   on tmpfs, some 25 GB at full scale [/dev/shm]; --disk-dir DIR on a disk [/tmp]
#   --scale P          percent of the entries of the workloads in memory [100], --disk-scale P on the disk [20]
#   --repeat N         compactions of each kind [3]; --threads N [all cores]
#   --experiments LIST of the section system [contention,scaling,secondary-index,update-ratio,steady], with
#                      --system-scale P percent [10] on the devices --system-devices LIST [cpu and --device];
#                      each cell --system-repeat N times [1];
#                      --stop-after SECONDS begins with no further measurement of an experiment after that [86400]
#   --gpukv LIST       experiments of the section gpukv [lookup,latency,dependent,load,ring,embedding]
#
# Writes DIR/summary.json: each step with its seconds and how it ended. Exit code 1 if one has failed.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
bin=$here/bin
# The programs are packed so that the bundle is small; the first call unpacks them.
for packed in "$bin"/*.xz; do
    [ ! -f "$packed" ] || xz -d "$packed"
done

out=results device=cuda:0 cases=1000 sanitize_cases=12 memory_dir=/dev/shm disk_dir=/tmp
kills=200 kill_processes=4 kill_seed=1
scale=100 disk_scale=20 repeat=3 threads=$(nproc)
experiments=contention,scaling,secondary-index,update-ratio,steady system_scale=10 system_devices='' system_repeat=1 stop_after=86400
gpukv=lookup,latency,dependent,load,ring,embedding
sections=()
while [ $# -gt 0 ]; do
    case "$1" in
        --out | --device | --cases | --sanitize-cases | --memory-dir | --disk-dir | --scale | --disk-scale | --repeat | --threads | \
            --kills | --kill-processes | --kill-seed | --experiments | --system-scale | --system-devices | --system-repeat | --stop-after | --gpukv)
            name=${1#--}
            printf -v "${name//-/_}" '%s' "${2:?$1 needs a value}"
            shift 2
            ;;
        tests | sanitize | bench | compressed | host_compression | small | scan | gpukv | sql | disk | paranoid | kill | subcompactions | system) sections+=("$1"); shift ;;
        *) echo "run.sh: $1 is neither an option nor a section; see its first lines" >&2; exit 2 ;;
    esac
done
[ ${#sections[@]} -gt 0 ] || sections=(tests sanitize bench)
mkdir -p "$out"
out=$(realpath "$out")
export ROCKMILL_TEST_DEVICE=$device

steps=()
failed=0
# A step's JSON, in one line.
note() { steps+=("{\"step\": \"$1\", \"seconds\": $2, \"ended\": \"$3\"}"); printf '%-32s %8s s  %s\n' "$1" "$2" "$3"; }
# step NAME COMMAND..: standard output goes to NAME.json where the command prints that, and all else to NAME.log.
step() {
    local name=$1 started ended=done to
    shift
    to=$out/$name.log
    case " $* " in *" --json "*) to=$out/$name.json ;; esac
    started=$EPOCHREALTIME
    if [ "$to" = "$out/$name.log" ]; then
        "$@" >"$to" 2>&1 || ended=failed
    else
        "$@" >"$to" 2>"$out/$name.log" || ended=failed
    fi
    note "$name" "$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $started}")" "$ended"
    if [ "$ended" = failed ]; then
        failed=1
        tail -n 5 "$out/$name.log" >&2
    fi
}

section_tests() {
    local program form='the library'
    # The tests fail where they find no AVX-512 then; without it they hold the library against itself.
    if grep -qw avx512f /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then
        export ROCKMILL_TEST_AVX512=1
        form=AVX-512
    fi
    echo "form of XXH3 that is tested: $form" | tee "$out/xxh3-form.log"
    for program in gpu_tests rockmill_cuda xxh3; do
        PROPTEST_CASES=$cases step "test-$program" "$bin/$program"
    done
}

section_sanitize() {
    local tool
    for tool in memcheck racecheck initcheck synccheck; do
        if ! command -v compute-sanitizer >/dev/null; then
            note "sanitize-$tool" 0 "skipped: compute-sanitizer is not on PATH"
            continue
        fi
        PROPTEST_CASES=$sanitize_cases step "sanitize-$tool" \
            compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/gpu_tests" same_files::files_and
    done
}

compaction() {
    local name=$1
    shift
    step "$name" "$bin/rockmill-bench" compaction --repeat "$repeat" --memory-mib 16384 --json "$@"
}

# Entries in millions and percent: how many that are.
entries() { echo $(($1 * 10000 * $2)); }

section_bench() {
    local place dir percent workload versions
    for place in memory disk; do
        dir=$memory_dir percent=$scale
        [ $place = memory ] || dir=$disk_dir percent=$disk_scale
        while read -r workload millions versions; do
            compaction "bench-$place-$workload-$versions" --dir "$dir" --versions "$versions" \
                --workload "$workload:none:$(entries "$millions" "$percent")" \
                --threads "$threads" --device "cpu,$device"
        done <<<"16x256 40 4
16x1024 10 4
8x32 48 4
16x256 40 1"
    done
    step bench-one-task "$bin/gpu_tests" --ignored --nocapture one_task
}

section_compressed() {
    local workload millions
    while read -r workload millions; do
        compaction "compressed-${workload/:/-}" --dir "$memory_dir" --threads "$threads" --device "cpu,$device" \
            --workload "$workload:$(entries "$millions" "$scale")"
    done <<<"16x256:lz4 24
16x256:snappy 24
8x32:lz4 48
16x256:zstd 16"
}

# Libraries on threads of the host compress, also on the CPU's rows.
section_host_compression() {
    local workload millions
    while read -r workload millions; do
        compaction "host-compression-${workload/:/-}" --dir "$memory_dir" --threads "$threads" --device "cpu,$device" \
            --workload "$workload:$(entries "$millions" "$scale")" --device-compression no
    done <<<"16x256:lz4 24
16x256:snappy 24
16x256:zstd 16
16x256:lz4hc 16"
}

section_sql() {
    local module
    for module in slt layouts queries; do
        step "sql-$module" "$bin/answers" --nocapture "$module::"
    done
}

section_share() {
    step share "$bin/one_card" --ignored --nocapture
}

section_scan() {
    local state compression factor
    # The last column is TPC-H's scale factor at --scale 100.
    while read -r state compression factor; do
        step "scan-$state-$compression" "$bin/rockmill-bench" scan --json --out "$out/scan-$state-$compression" \
            --dir "$memory_dir" --threads "$threads" --device "cpu,$device" --repeat "$repeat" --state "$state" \
            --compression "$compression" --scale "$(awk "BEGIN {print $factor * $scale / 100}")" --parquet
    done <<<"settled none 10
settled,live none 3
settled lz4 3"
    step scan-again "$bin/rockmill-bench" scan --json --dir "$memory_dir" --threads "$threads" --device "$device" \
        --repeat "$repeat" --experiment q1,q6,ycsb --state settled,live --device-cache-mib 40000 \
        --scale "$(awk "BEGIN {print 3 * $scale / 100}")"
    step scan-direct "$bin/rockmill-bench" scan --json --direct --dir "$disk_dir" --threads "$threads" \
        --device "cpu,$device" --repeat "$repeat" --experiment q6,q14,ycsb --scale "$(awk "BEGIN {print 3 * $disk_scale / 20}")"
}

# Files on the disk are for direct I/O.
section_gpukv() {
    local experiment dir percent
    for experiment in ${gpukv//,/ }; do
        dir=$memory_dir percent=$scale
        [ "$experiment" != load ] || dir=$disk_dir percent=$disk_scale
        step "gpukv-$experiment" "$bin/rockmill-bench" gpukv --experiment "$experiment" --out "$out/gpukv-$experiment" \
            --dir "$dir" --device "$device" --repeat "$repeat" --scale "$(awk "BEGIN {print $percent / 100}")"
    done
}

section_small() {
    local compression
    for compression in none lz4 zstd; do
        compaction "small-$compression" --dir "$memory_dir" --runs 4 --threads "$threads" --device "cpu,$device" \
            --workload "$(printf "16x256:$compression:%s," 4K 15K 60K 250K 1M | sed 's/,$//')"
    done
}

section_disk() {
    local millions
    for millions in 80 120; do
        compaction "disk-$millions" --dir "$disk_dir" --threads "$threads" --device "cpu,$device" --floor --no-compare \
            --workload "16x256:none:$(entries "$millions" "$disk_scale")" --also bypass
    done
}

section_paranoid() {
    local checks
    for checks in '' --paranoid; do
        compaction "paranoid${checks:+-on}" --dir "$memory_dir" --threads "$threads" --device "cpu,$device" --no-compare \
            --workload "16x256:none:$(entries 8 "$scale")" ${checks:+"$checks"}
    done
}

section_kill() {
    TMPDIR=$disk_dir ROCKMILL_JSON=$out/kill.json ROCKMILL_SEED=$kill_seed ROCKMILL_CASES=$kills \
        ROCKMILL_AT_ONCE=$kill_processes step kill "$bin/crash" kill
}

# Subcompactions of 64 MB, 256 MB and 1 GB of input are two files of 32, 128 and 512 MiB.
section_subcompactions() {
    local workload millions
    while read -r workload millions; do
        compaction "subcompactions-$workload" --dir "$memory_dir" --rocksdb no --device "$device" \
            --workload "$workload:none:$(entries "$millions" "$scale")" --threads 1,2,8 \
            --target-file-mib 32,128,512
    done <<<"16x256 40
8x32 48"
}

section_system() {
    local experiment bound
    for experiment in ${experiments//,/ }; do
        # Without clients there is nothing that could be bounded.
        bound=(--bound)
        [ "$experiment" != scaling ] || bound=()
        step "system-$experiment" "$bin/rockmill-bench" system --experiment "$experiment" --out "$out/system" \
            --dir "$memory_dir" --scale "$system_scale" --repeat "$system_repeat" --stop-after "$stop_after" --threads "$threads" \
            --memory-mib 16384 --device "${system_devices:-cpu,$device}" "${bound[@]}"
    done
}

step devices "$bin/rockmill" devices --json
for section in "${sections[@]}"; do
    "section_$section"
done
{
    printf '{"commit": "%s", "steps": [\n' "$(cat "$here/commit")"
    printf '%s' "  ${steps[0]}"
    printf ',\n  %s' "${steps[@]:1}"
    printf '\n]}\n'
} >"$out/summary.json"
exit $failed
