#!/usr/bin/env bash
# Tests the jar that doors/java/build.sh has made in FOLDER with stock jars of Maven Central:
#   doors/java/test.sh FOLDER [VERSION..]
# A version is one of RocksJava, or frocksdb-8.10.0-ververica-1.0. Without one, these are three. ROCKMILL_CASES is the number
# of random histories for each, and ROCKMILL_SEED the seed of the first.
set -euo pipefail
folder=$(realpath "${1:?usage: doors/java/test.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/../.."
. doors/java/fetch.sh
[ $# -gt 0 ] || set -- 7.9.2 9.7.3 10.10.1.1
tests=$folder/tests
rm -rf "$tests"
mkdir -p "$tests"
streams=
for path in org/apache/kafka/kafka-streams/4.1.0/kafka-streams-4.1.0.jar org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar \
    org/apache/kafka/kafka-clients/4.1.0/kafka-clients-4.1.0.jar \
    org/apache/kafka/kafka-streams-test-utils/4.1.0/kafka-streams-test-utils-4.1.0.jar; do
    streams=$streams:$(maven "$path")
done
compiled=$(rocksjava 10.4.2)
javac --release 11 -cp "$compiled:$folder/rockmill.jar$streams" -d "$tests" doors/java/src/test/java/*.java

data=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
elsewhere=$(mktemp -d)
trap 'rm -rf "$data" "$elsewhere"' EXIT
for version; do
    case $version in
        frocksdb-*) jar=$(maven "com/ververica/frocksdbjni/${version#*-}/frocksdbjni-${version#*-}.jar") ;;
        *)
            jar=$(rocksjava "$version")
            # Some releases have the native library in a jar of its own.
            [ "$(stat -c %s "$jar")" -gt 5000000 ] || jar=$jar:$(rocksjava "$version" linux64)
            ;;
    esac
    run() { java -Xcheck:jni -Xmx512m -Djava.io.tmpdir="$data" -cp "$jar:$tests$1" "${@:2}"; }
    run ":$folder/rockmill.jar" Histories "$data" "${ROCKMILL_CASES:-20}" ${ROCKMILL_SEED:+"$ROCKMILL_SEED"} 2>&1 |
        grep -v '^OpenJDK 64-Bit Server VM warning' || exit 1
    run ":$folder/rockmill.jar" Refusals "$data/refusals"
    # With /dev/shm for $data, the other folder is on another file system.
    if [ "$(stat -c %d "$data")" != "$(stat -c %d "$elsewhere")" ]; then
        run ":$folder/rockmill.jar" OtherFileSystem "$data/paths" "$elsewhere/paths"
    else
        echo "another file system: not tested, since $data and $elsewhere are on one" >&2
    fi
    # Two copies, in class loaders of their own.
    one=$jar:$folder/rockmill.jar:$tests/
    java -Djava.io.tmpdir="$data" -cp "$tests" Loaders "$data/loaders" "$one" "$one"
    # The agent attaches without the program's help.
    java -Xmx512m -Djava.io.tmpdir="$data" "-javaagent:$folder/rockmill.jar=min_job_bytes=0" -cp "$jar:$tests" Unaware "$data/unaware"
    # It leaves options alone that the program has attached Rockmill to.
    said=$(java -Xmx512m -Djava.io.tmpdir="$data" "-javaagent:$folder/rockmill.jar" -cp "$jar:$tests:$folder/rockmill.jar" \
        Refusals "$data/attached" 2>&1) && [[ $said != *"without Rockmill"* ]] || { echo "$said" >&2; exit 1; }
    # Kafka Streams 4.0 and 4.1 have this one.
    if [ "$version" = 9.7.3 ]; then run ":$folder/rockmill.jar$streams" StreamsDriver "$data/streams" 2>/dev/null; fi
    if compgen -G "$data/rockmill*" >&2; then
        echo "doors/java: these stay in the temporary folder" >&2
        exit 1
    fi
    rm -rf "$data"/* "$elsewhere"/*
done
