#!/usr/bin/env bash
# Lets C++ programs attach Rockmill, through include/rockmill/rocksdb.hpp, to the RocksDB inside of RocksJava:
#   doors/java/cpp.sh FOLDER [VERSION..]
# So no RocksDB has to be compiled. FOLDER is that of build.sh. The programs are those of doors/capi/tests/doors: random
# histories with and without Rockmill, also with objects that the program attaches, and processes that are killed.
# ROCKMILL_CASES is the number of histories, and ROCKMILL_SEED the seed of the first.
set -euo pipefail
folder=$(realpath "${1:?usage: doors/java/cpp.sh FOLDER [VERSION..]}")
shift
cd "$(dirname "$0")/../.."
. doors/java/fetch.sh
# The package that is named after 8.5.3 has the headers of 8.6.7, whose structs are larger.
[ $# -gt 0 ] || set -- 7.8.3 7.9.2 8.1.1 8.6.7 8.8.1 8.9.1 8.10.0 8.11.3 9.0.0 9.1.1 9.2.1 9.3.1 9.4.0 9.5.2 9.6.1 9.7.3 \
    9.7.4 9.8.4 9.9.3 9.10.0 9.11.2
export ROCKMILL_CASES=${ROCKMILL_CASES:-40}
native=$folder/classes/META-INF/native/linux-x86_64
programs=doors/capi/tests/doors/programs

work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
trap 'rm -rf "$work"' EXIT
failed=
for version; do
    package=$(sed -n "s/^$version //p" doors/java/versions.txt)
    headers=$(headers "${package:?doors/java/versions.txt has no $version}" "$version")
    unzip -q -o -p "$(rocksjava "$version")" librocksdbjni-linux64.so >"$work/librocksdb.so"
    for program in differential attached killed; do
        # As RocksJava is compiled for Maven Central.
        c++ -std=c++20 -O1 -fno-rtti -D_GLIBCXX_USE_CXX11_ABI=0 -DROCKSDB_PLATFORM_POSIX -DOS_LINUX -w -I include \
            -isystem "$headers" -o "$work/$program" "$programs/$program.cpp" "$work/librocksdb.so" "$native/librockmill.so.2" \
            -lpthread -ldl "-Wl,-rpath,$work:$native"
        mkdir "$work/data"
        "$work/$program" "$work/data" >"$work/said" 2>"$work/errors" && grep -q '^{"rocksdb"\|^done$' "$work/said" ||
            { failed="$failed $version/$program"; tail -n 20 "$work/said" "$work/errors" >&2; }
        cut -c 1-250 "$work/said"
        rm -rf "$work/data"
    done
done
[ -z "$failed" ] || { echo "cpp: these have failed:$failed" >&2; exit 1; }
