#!/usr/bin/env bash
# Runs an application of Kafka Streams on a broker on loopback with and without Rockmill:
#   doors/java/systems/kafka.sh FOLDER [VERSION..]
# FOLDER holds rockmill.jar. Application and broker are killed and started again, and then the state is removed and restored.
# The stores have to have the content that a model has. ROCKMILL_RECORDS is the number of records, and TMPDIR has to hold
# some 5,000 bytes for each. The last lines are a table.
set -euo pipefail
folder=$(realpath "${1:?usage: doors/java/systems/kafka.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/../../.."
. doors/java/fetch.sh
. doors/java/systems/run.sh
[ $# -gt 0 ] || set -- 3.9.1 4.1.1 4.4.0
records=${ROCKMILL_RECORDS:-700000}
readonly KILL_PROGRAM_AT=0.3 KILL_BROKER_AT=0.6

start_broker() {
    java -Xmx768m -cp "$path" kafka.Kafka "$data/server.properties" >>"$data/broker.log" 2>&1 &
    broker=$!
}

kill_broker() {
    kill -9 "$broker"
    wait "$broker" 2>/dev/null || true
    broker=
}

# start_program MODE LIFE [OPTION]
start_program() {
    start "$data/$1.$2" java -Xmx1g "${@:3}" -Djava.io.tmpdir="$data" -Dmeasure="$data/$1.$2.json" \
        -cp "$path:$folder/rockmill.jar:$data/classes" Streams run "$address" "$records" "$data" "state-$1" \
        "$data/logs-$1-$2" "$1"
}

for version; do
    data=$work/$version
    mkdir -p "$data/classes"
    path=$(classpath "kafka-$version" "org.apache.kafka:kafka_2.13:$version" "org.apache.kafka:kafka-streams:$version")
    path=$path:$(simple_logger "$path")
    javac -cp "$path" -d "$data/classes" doors/java/systems/Measure.java doors/java/systems/kafka/Streams.java
    read -r first second < <(python3 -c 'import socket
sockets = [socket.socket() for _ in range(2)]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))')
    address=127.0.0.1:$first
    cat >"$data/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$second
listeners=PLAINTEXT://$address,CONTROLLER://127.0.0.1:$second
advertised.listeners=PLAINTEXT://$address
controller.listener.names=CONTROLLER
log.dirs=$data/broker
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
    java -cp "$path" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c "$data/server.properties" >"$data/broker.log" 2>&1 ||
        { cat "$data/broker.log" >&2; exit 1; }
    start_broker
    java -cp "$path:$data/classes" Streams produce "$address" "$records" "$data" >"$data/produce.log" 2>&1 ||
        { tail -n 30 "$data/produce.log" >&2; exit 1; }
    java -Xmx2g -cp "$path:$data/classes" Streams model "$address" "$records" "$data" >"$data/model" 2>/dev/null
    for mode in without with; do
        start_program $mode 0
        wait_until "$data/$mode.0" "progress > $KILL_PROGRAM_AT"
        kill_program
        start_program $mode 1
        wait_until "$data/$mode.1" "progress > $KILL_BROKER_AT"
        kill_broker
        start_broker
        finish "$data/$mode.1"
        rm -rf "$data/state-$mode"
        # It restores all stores from the broker. A second instance then has standbys.
        start_program $mode 2 -Dstandby=true
        finish "$data/$mode.2"
        rm -rf "$data/state-$mode"
    done
    kill_broker
    python3 doors/java/systems/kafka/report.py "$version" "$data" >>"$work/table" || { cat "$work/table"; exit 1; }
    rm -rf "$data/broker"
done
python3 doors/java/systems/logs.py
cat "$work/table"
