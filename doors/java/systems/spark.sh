#!/usr/bin/env bash
# Runs a query of Spark's Structured Streaming with a RocksDB state store, with and without Rockmill's agent:
#   doors/java/systems/spark.sh FOLDER [VERSION..]
# FOLDER holds rockmill.jar. The process is killed and goes on from its checkpoint. The state has to be that of a model.
# ROCKMILL_BATCHES is the number of batches of 250,000 rows. The last lines are a table.
set -euo pipefail
folder=$(realpath "${1:?usage: doors/java/systems/spark.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/../../.."
. doors/java/fetch.sh
. doors/java/systems/run.sh
[ $# -gt 0 ] || set -- 4.1.1
batches=${ROCKMILL_BATCHES:-24}
opens=()
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent \
    java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do
    opens+=(--add-opens "java.base/$package=ALL-UNNAMED")
done

# start_query MODE LIFE
start_query() {
    local agent=()
    [ "$1" = without ] || agent=("-javaagent:$folder/rockmill.jar")
    start "$data/$1.$2" java -Xmx2g "${agent[@]}" "${opens[@]}" -Djava.io.tmpdir="$data" -Dmeasure="$data/$1.$2.json" \
        -cp "$path:$data/classes" Query "$batches" "$data/checkpoint-$1" "$data/local-$1-$2"
}

for version; do
    data=$work/$version
    mkdir -p "$data/classes"
    path=$(classpath "spark-$version" "org.apache.spark:spark-sql_2.13:$version")
    javac -cp "$path" -d "$data/classes" doors/java/systems/Measure.java doors/java/systems/spark/Query.java
    java -Xmx2g -cp "$path:$data/classes" Query "$batches" >"$data/model" 2>/dev/null
    for mode in without with; do
        start_query $mode 0
        wait_until "$data/$mode.0" "progress > 0.4"
        kill_program
        start_query $mode 1
        finish "$data/$mode.1"
        rm -rf "$data"/checkpoint-* "$data"/spark*
    done
    python3 doors/java/systems/spark/report.py "$version" "$data" >>"$work/table" || { cat "$work/table"; exit 1; }
done
python3 doors/java/systems/logs.py
cat "$work/table"
