#!/usr/bin/env bash
# Makes the corpus: small databases that RocksDB 3.13 to 10.4 and LevelDB wrote (doors/cli/tests/data/corpus.tar.zst).
# The programs in doors/cli/tests/corpus write them. Needs Java with Maven, and Python with pip, which
# fetch the writers from Maven Central and PyPI. The archive itself is in the repository: tests need nothing of this.
#
#   scripts/corpus.sh
set -euo pipefail

cd "$(dirname "$0")/.."

versions="3.13.1 4.13.5 5.8.7 5.18.4 6.8.1 6.20.3 7.8.3 8.10.0 9.8.4 10.4.2"
# Some of those whose RocksJava writes format_version 0 unless it is told another.
legacy_versions="3.13.1 4.13.5 5.18.4"
# From this version on, the library is in a package of its own for each platform.
separate_library="10.4.2"
plyvel="1.5.1"
# Old versions write this path into OPTIONS. It must not exist when the databases are read.
databases="/tmp/rockmill-corpus"
archive="doors/cli/tests/data/corpus.tar.zst"
[ ! -e "$databases" ] || {
    echo "corpus.sh: remove $databases first" >&2
    exit 3
}
work="$(mktemp -d)"
trap 'rm -rf "$work" "$databases"' EXIT

fetch() {
    mvn -q -B dependency:copy -Dartifact="org.rocksdb:rocksdbjni:$1" -DoutputDirectory="$work"
}

for version in $versions; do
    fetch "$version"
    path="$work/rocksdbjni-$version.jar"
    if [ "$version" = "$separate_library" ]; then
        fetch "$version:jar:linux64"
        path="$path:$work/rocksdbjni-$version-linux64.jar"
    fi
    classes="$work/classes-$version"
    mkdir -p "$classes" "$databases/$version"
    javac -nowarn -cp "$path" -d "$classes" doors/cli/tests/corpus/Generate.java
    generate() {
        java -cp "$path:$classes" Generate "$databases/$version/$1" "$@"
    }
    generate once
    generate again 1
    generate again 2
    case " $legacy_versions " in
        *" $version "*) generate legacy ;;
    esac
done

python3 -m pip install -q --no-deps --target "$work/python" "plyvel==$plyvel"
PYTHONPATH="$work/python" python3 doors/cli/tests/corpus/leveldb.py "$databases/leveldb"

find "$databases" \( -name 'LOG*' -o -name LOCK \) -delete
mkdir -p "$(dirname "$archive")"
ZSTD_CLEVEL=19 tar -C "$databases" --sort=name --owner=0 --group=0 --numeric-owner --zstd -cf "$archive" .
ls -l "$archive"
