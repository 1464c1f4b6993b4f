#!/usr/bin/env bash
# Runs a job of Flink with RocksDB state and incremental checkpoints, with and without Rockmill:
#   doors/java/systems/flink.sh FOLDER [VERSION..]
# FOLDER holds rockmill.jar. The process is killed and goes on from its last checkpoint with another parallelism, and then one
# of its tasks fails. The result has to be that of a model. ROCKMILL_RECORDS is the number of records. The last lines are a
# table.
set -euo pipefail
folder=$(realpath "${1:?usage: doors/java/systems/flink.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/../../.."
. doors/java/fetch.sh
. doors/java/systems/run.sh
[ $# -gt 0 ] || set -- 2.3.0
records=${ROCKMILL_RECORDS:-2000000}
readonly KILL_AT=0.4
opens=()
for package in java.util java.lang java.time java.util.concurrent; do opens+=(--add-opens "java.base/$package=ALL-UNNAMED"); done

# start_job MODE LIFE PARALLELISM [CHECKPOINT]
start_job() {
    mkdir -p "$work/t"
    start "$data/$1.$2" java -Xmx1500m "${opens[@]}" -Djava.io.tmpdir="$work/t" -Dmeasure="$data/$1.$2.json" \
        -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$path:$folder/rockmill.jar:$data/classes" Job "$records" \
        "$data/checkpoints-$1" "$data/logs-$1-$2" "$1" "${@:3}"
}

for version; do
    data=$work/$version
    mkdir -p "$data/classes"
    path=$(classpath "flink-$version" "org.apache.flink:flink-clients:$version" \
        "org.apache.flink:flink-streaming-java:$version" "org.apache.flink:flink-statebackend-rocksdb:$version")
    path=$path:$(simple_logger "$path")
    javac -cp "$path:$folder/rockmill.jar" -d "$data/classes" doors/java/systems/Measure.java doors/java/systems/flink/Job.java \
        examples/java/Greatest.java
    start "$data/example" java "${opens[@]}" -cp "$path:$folder/rockmill.jar:$data/classes" Greatest 100000
    finish "$data/example"
    grep -q '7: 99007$' "$data/example.log" && ! grep 'without Rockmill' "$data/example.log" || fail "$data/example"
    java -Xmx2g -cp "$path:$data/classes" Job "$records" >"$data/model" 2>/dev/null
    for mode in without with; do
        start_job $mode 0 2
        wait_until "$data/$mode.0" "progress > $KILL_AT and checkpoints > 1"
        kill_program
        # The newest that is complete.
        checkpoint=$(find "$data/checkpoints-$mode" -name _metadata -printf '%T@ %h\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
        [ -n "$checkpoint" ] || fail "$data/$mode.0"
        start_job $mode 1 3 "$checkpoint"
        finish "$data/$mode.1"
        rm -rf "$data"/checkpoints-* "$work/t"
    done
    python3 doors/java/systems/flink/report.py "$version" "$data" >>"$work/table" || { cat "$work/table"; exit 1; }
done
python3 doors/java/systems/logs.py
cat "$work/table"
