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
# The repository of Maven has what its paths say.
python3 - "$folder" <<'PYTHON'
import pathlib, sys, xml.etree.ElementTree as tree, zipfile
folder = pathlib.Path(sys.argv[1])
[pom] = (folder / "maven").rglob("*.pom")
named = {one.tag.split("}")[1]: one.text for one in tree.parse(pom).getroot()}
version = named["version"]
assert pom.relative_to(folder / "maven").as_posix() == f"org/rockmill/rockmill/{version}/rockmill-{version}.pom"
assert (pom.parent / f"rockmill-{version}.jar").read_bytes() == (folder / "rockmill.jar").read_bytes()
for kind, name in ("sources", "org/rockmill/Rockmill.java"), ("javadoc", "org/rockmill/Rockmill.html"):
    assert name in zipfile.ZipFile(pom.parent / f"rockmill-{version}-{kind}.jar").namelist(), kind
PYTHON
streams=
for path in org/apache/kafka/kafka-streams/4.1.0/kafka-streams-4.1.0.jar org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar \
    org/apache/kafka/kafka-clients/4.1.0/kafka-clients-4.1.0.jar \
    org/apache/kafka/kafka-streams-test-utils/4.1.0/kafka-streams-test-utils-4.1.0.jar; do
    streams=$streams:$(maven "$path")
done
compiled=$(rocksjava 10.4.2)
meters=
for path in core commons observation; do
    meters=$meters:$(maven "io/micrometer/micrometer-$path/1.15.5/micrometer-$path-1.15.5.jar")
done
javac --release 11 -cp "$compiled:$folder/rockmill.jar$streams$meters" -d "$tests" doors/java/src/test/java/*.java \
    examples/java/Words.java

data=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
elsewhere=$(mktemp -d)
trap 'rm -rf "$data" "$elsewhere"' EXIT
is_before_10_10() { [[ $1 = frocksdb-* ]] || [ "$(printf '%s\n' "$1" 10.10 | sort -V | head -n 1)" = "$1" ]; }
for version; do
    case $version in
        frocksdb-*) jar=$(maven "com/ververica/frocksdbjni/${version#*-}/frocksdbjni-${version#*-}.jar") ;;
        *)
            jar=$(rocksjava "$version")
            # Some releases have the native library in a jar of its own.
            [ "$(stat -c %s "$jar")" -gt 5000000 ] || jar=$jar:$(rocksjava "$version" linux64)
            ;;
    esac
    # Another version.
    stray=9.7.3
    [ "$version" != 9.7.3 ] || stray=7.9.2
    other=$(rocksjava "$stray")
    # Prints what the JVM's check of native code says of Rockmill, and fails then.
    checked() {
        local said
        said=$(run ":$folder/rockmill.jar" "$@" 2>&1) || { echo "$said" >&2; exit 1; }
        if grep -A 3 '^WARNING' <<<"$said" | grep 'org\.rockmill' >&2; then exit 1; fi
        grep -v '^OpenJDK 64-Bit Server VM warning' <<<"$said"
    }
    run() { java -Xcheck:jni -Xmx512m -Djava.io.tmpdir="$data" -cp "$jar:$tests$1" "${@:2}"; }
    checked Histories "$data" "${ROCKMILL_CASES:-20}" ${ROCKMILL_SEED:+"$ROCKMILL_SEED"}
    checked Refusals "$data/refusals"
    # A path that JNI's own encoding of strings writes otherwise than the file system.
    mkdir -p "$data/𝄞"
    LC_ALL=C.UTF-8 checked Mapped "$data/𝄞"
    run ":$folder/rockmill.jar" Closing "$data/closing"
    run ":$folder/rockmill.jar" Changes "$data/changes" ${ROCKMILL_SEED:+"$ROCKMILL_SEED"}
    run ":$folder/rockmill.jar" Many "$data/many" 20
    run ":$folder/rockmill.jar" Killed "$data/killed" "${ROCKMILL_KILLS:-3}"
    run ":$folder/rockmill.jar$meters" Meters "$data/meters"
    run "" Goes "$data/goes" "$folder/rockmill.jar"
    if is_before_10_10 "$version"; then
        # A jar that has no part for this version.
        python3 - "$folder/rockmill.jar" "$data/less.jar" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as jar, zipfile.ZipFile(sys.argv[2], "w") as less:
    for name in jar.namelist():
        if "/rocksdb-" not in name: less.writestr(name, jar.read(name))
PYTHON
        run ":$data/less.jar" Unknown "has no part for RocksJava"
        # A library of another version in the class path: the version of the one that is mapped counts.
        mkdir -p "$data/stray"
        unzip -q -o -p "$other" librocksdbjni-linux64.so >"$data/stray/librocksdbjni-linux64.so"
        java -Djava.io.tmpdir="$data" -cp "$data/stray:$jar:$tests:$data/less.jar" Unknown "has no part for RocksJava $stray"
    fi
    # The JVM loads the file that the link names.
    mkdir -p "$data/links"
    unzip -q -o -p "${jar##*:}" librocksdbjni-linux64.so >"$data/librenamed.so"
    ln -s "$data/librenamed.so" "$data/links/librocksdbjni.so"
    java -Djava.io.tmpdir="$data" "-Djava.library.path=$data/links" -cp "$jar:$tests:$folder/rockmill.jar" Unknown "under its own name"
    # A library for a newer glibc: one warning, and nothing is attached.
    python3 - "$folder/rockmill.jar" "$data/newer.jar" <<'PYTHON'
import re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as jar, zipfile.ZipFile(sys.argv[2], "w") as newer:
    for name in jar.namelist():
        library = jar.read(name)
        if name.endswith("librockmill.so.2"):
            library, count = re.subn(rb"\0GLIBC_2\.\d", b"\0GLIBC_9.9", library)
            assert count
        newer.writestr(name, library)
PYTHON
    said=$(run ":$data/newer.jar" Unsupported "$data/newer" 2>&1) && [ "$(grep -c "a glibc that is new enough" <<<"$said")" = 1 ] ||
        { echo "$said" >&2; exit 1; }
    said=$(java -Djava.io.tmpdir="$data" "-javaagent:$data/newer.jar" -cp "$jar:$tests:$data/newer.jar" Unsupported \
        "$data/newer" 2>&1) && [ "$(grep -c "RocksDB goes on without Rockmill: .* new enough" <<<"$said")" = 1 ] ||
        { echo "$said" >&2; exit 1; }
    agent() { java -Xmx512m -Djava.io.tmpdir="$data" "-javaagent:$folder/rockmill.jar=min_job_bytes=0" "$@"; }
    # With /dev/shm for $data, the other folder is on another file system.
    if [ "$(stat -c %d "$data")" != "$(stat -c %d "$elsewhere")" ]; then
        run ":$folder/rockmill.jar" OtherFileSystem "$data/paths" "$elsewhere/paths"
        rm -rf "$data/paths" "$elsewhere/paths"
        agent -cp "$jar:$tests:$folder/rockmill.jar" OtherFileSystem "$data/paths" "$elsewhere/paths" agent
    else
        echo "another file system: not tested, since $data and $elsewhere are on one" >&2
    fi
    # Two copies, in class loaders of their own.
    one=$jar:$folder/rockmill.jar:$tests/
    java -Djava.io.tmpdir="$data" -cp "$tests" Loaders "$data/loaders" Refusals "$one" "$one"
    # Two versions.
    java -Djava.io.tmpdir="$data" -cp "$tests" Loaders "$data/mixed" Mixed "$other:$folder/rockmill.jar:$tests/" "$one"
    is_before_10_10 "$version" || {
        # The example in Python, through the C API of this library.
        mkdir -p "$data/c"
        cp "$folder/classes/META-INF/native/linux-x86_64/librockmill.so.2" "$data/c/"
        ln -s librockmill.so.2 "$data/c/librockmill.so"
        doors/attach/compile.sh "$data/c"
        unzip -q -o -p "${jar##*:}" librocksdbjni-linux64.so >"$data/c/librocksdb.so"
        said=$(python3 examples/ctypes/compact.py "$data/c/librocksdb.so" "$data/c/librockmill_attach.so" "$data/python")
        echo "ctypes: $said"
        [[ $said = [1-9]*" jobs done" ]] || exit 1
    }
    # The agent attaches without the program's help.
    # A relative temporary folder does no harm.
    (cd "$data" && java -Xmx512m -Djava.io.tmpdir=. "-javaagent:$folder/rockmill.jar=min_job_bytes=0" -cp "$jar:$tests" \
        Unaware "$data/unaware")
    # Also in class loaders that do not see it, or have a copy of their own.
    agent -cp "$tests" Loaders "$data/unseen" Unaware "$jar:$tests/" "$one"
    agent -cp "$jar:$tests" Transactions "$data/transactions"
    said=$(agent -cp "$jar:$tests" Broken 2>&1) && [[ $said = *"cannot change org.rocksdb.TtlDB"* ]] || { echo "$said" >&2; exit 1; }
    # It leaves options alone that the program has attached Rockmill to.
    said=$(java -Xmx512m -Djava.io.tmpdir="$data" "-javaagent:$folder/rockmill.jar" -cp "$jar:$tests:$folder/rockmill.jar" \
        Refusals "$data/attached" agent 2>&1) && [[ $said != *"without Rockmill"* ]] || { echo "$said" >&2; exit 1; }
    # Kafka Streams 4.0 and 4.1 have this one.
    if [ "$version" = 9.7.3 ]; then run ":$folder/rockmill.jar$streams" StreamsDriver "$data/streams" 2>/dev/null; fi
    # A temporary folder from which nothing is run.
    mkdir -p "$data/noexec"
    if unshare -rm mount -t tmpfs -o noexec none "$data/noexec" 2>/dev/null; then
        unshare -rm sh -c 'mount -t tmpfs -o noexec none "$1" && shift && exec "$@"' sh "$data/noexec" \
            java -Djava.io.tmpdir="$data" "-Drockmill.tmpdir=$data/noexec" -cp "$jar:$tests:$folder/rockmill.jar" \
            Unknown "mounted noexec"
    else
        echo "a temporary folder that is mounted noexec: not tested, since this user cannot mount one" >&2
    fi
    if compgen -G "$data/rockmill*" >&2; then
        echo "doors/java: these stay in the temporary folder" >&2
        exit 1
    fi
    rm -rf "$data"/* "$elsewhere"/*
done
