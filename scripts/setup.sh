#!/usr/bin/env bash
# Makes sure that what the build needs is there: a Rust toolchain, a C++20 compiler, libclang with its
# headers (RocksDB's bindings are generated), make. `scripts/setup.sh tests` also fetches promtool, which checks
# the rules and the dashboard of monitoring/; `scripts/setup.sh java` also installs a JDK, `scripts/setup.sh go` Go as well; `scripts/setup.sh systems` also
# Maven, which fetches Kafka, Flink and Spark; `scripts/setup.sh stress` also what compiles RocksDB's stress test; `scripts/setup.sh python` prints a Python that has the packages for the tests of
# Python's package, or nothing if pip cannot install them, and `scripts/setup.sh pyright` prints the type checker in the same
# way. As root, missing system packages are installed with apt-get; otherwise one sentence says what to do. Exit code 3 if something stays missing.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

readonly MIN_RUST=1.94
with_java= with_maven= with_go= with_stress=
case "${1:-}" in
    java) with_java=yes ;;
    go) with_java=yes with_go=yes ;;
    systems) with_java=yes with_maven=yes ;;
    stress) with_stress=yes ;;
esac
readonly with_java with_maven with_go with_stress
readonly EXIT_ENVIRONMENT=3

stop() {
    echo "setup: $1" >&2
    exit "$EXIT_ENVIRONMENT"
}

cxx_works() {
    echo '#include <string>' | "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}

any_file() {
    local pattern
    for pattern; do
        if compgen -G "$pattern" >/dev/null; then
            return 0
        fi
    done
    return 1
}

# The library that bindgen loads (not libclang-cpp, which it cannot use), and the compiler's own
# headers, which Debian packages apart from it.
libclang_works() {
    local dir libraries=() headers=()
    for dir in ${LIBCLANG_PATH:+"$LIBCLANG_PATH"} '/usr/lib*' '/usr/lib/*' '/usr/lib/llvm*/lib*' /usr/local/lib; do
        libraries+=("$dir/libclang.so*" "$dir/libclang-[0-9]*.so*")
        headers+=("$dir/clang/*/include/stddef.h")
    done
    any_file "${libraries[@]}" && any_file "${headers[@]}"
}

system_packages() {
    local missing=()
    cxx_works || missing+=(g++)
    libclang_works || missing+=(libclang-dev)
    command -v make >/dev/null || missing+=(make)
    [ -z "$with_java" ] || command -v javac >/dev/null || missing+=(default-jdk-headless)
    [ -z "$with_maven" ] || command -v mvn >/dev/null || missing+=(maven)
    [ -z "$with_stress" ] || command -v cmake >/dev/null || missing+=(cmake)
    [ -z "$with_stress" ] || command -v ninja >/dev/null || missing+=(ninja-build)
    [ -z "$with_stress" ] || any_file /usr/include/gflags/gflags.h || missing+=(libgflags-dev)
    [ -z "$with_go" ] || command -v go >/dev/null || missing+=(golang-go)
    [ ${#missing[@]} -gt 0 ] || return 0
    local install="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        stop "please install ${missing[*]} (on Debian and Ubuntu: sudo $install)."
    fi
    echo "setup: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    # A stale list is no reason to stop as long as the packages can be had. It takes a minute, and says what it does.
    apt-get update -q >&2 || true
    $install -q >&2 || stop "'$install' failed."
    cxx_works && libclang_works || stop "${missing[*]} was installed, but the C++20 compiler or libclang cannot be found."
}

# The toolchain of rust-toolchain.toml through rustup, or any that is new enough.
rust_toolchain() {
    if command -v rustup >/dev/null; then
        local channel
        channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
        if ! { cargo --version && cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
            rustup toolchain install "$channel" --profile minimal --component clippy,rustfmt ||
                stop "rustup could not install Rust $channel with clippy and rustfmt."
        fi
        return
    fi
    local advice="install Rust $MIN_RUST or newer with rustup (https://rustup.rs)"
    command -v cargo >/dev/null && command -v rustc >/dev/null || stop "please $advice."
    local version
    version=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$MIN_RUST" "$version" | sort -V | head -n 1)" = "$MIN_RUST" ] ||
        stop "Rust $version is too old; please $advice."
    { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 ||
        echo "setup: without rustfmt and clippy, 'make demo' works but 'make test' does not." >&2
}

# Debian's package of Prometheus depends on much that promtool does not need, so only its file is taken. Without it,
# tests say that they are skipped.
fetch_promtool() {
    local into="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/promtool" work
    if command -v promtool >/dev/null || [ -x "$into/promtool" ]; then
        return
    fi
    work=$(mktemp -d)
    download() (cd "$work" && apt-get download -qq prometheus) >/dev/null 2>&1
    # A new machine has no list of packages yet.
    if { download || { apt-get update -qq && download; }; } >/dev/null 2>&1 && dpkg -x "$work"/*.deb "$work"; then
        mkdir -p "$into"
        mv "$work/usr/bin/promtool" "$into/"
    else
        echo "setup: promtool could not be fetched (Debian's package 'prometheus'); tests of monitoring/ will be skipped." >&2
    fi
    rm -rf "$work"
}

# A virtual environment for each list of packages, in the cache folder.
python_environment() {
    local wanted=doors/python/requirements-test.txt cache="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/python" into
    into="$cache/$( (python3 --version; cat "$wanted") 2>/dev/null | sha256sum | cut -c1-16)"
    if [ ! -e "$into/complete" ]; then
        rm -rf "$into"
        mkdir -p "$cache"
        if python3 -m venv "$into" && "$into/bin/pip" install -q --disable-pip-version-check -r "$wanted" &&
            touch "$into/complete"; then
            :
        else
            rm -rf "$into"
            echo "setup: Python 3.10 or newer with venv and pip could not install $wanted; tests of the Python package will be skipped." >&2
            return
        fi >&2
    fi
    echo "$into/bin/python"
}

# Pyright, in the cache folder; prints nothing where npm cannot install it.
pyright() {
    local version=1.1.414 into
    into="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/pyright-$version"
    if [ ! -e "$into/complete" ]; then
        rm -rf "$into"
        mkdir -p "$into"
        if command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix "$into" "pyright@$version" >&2; then
            touch "$into/complete"
        else
            rm -rf "$into"
            echo "setup: npm could not install pyright $version; its test will be skipped." >&2
            return
        fi
    fi
    echo "$into/node_modules/.bin/pyright"
}

if [ "${1-}" = python ]; then
    python_environment
    exit
fi
if [ "${1-}" = pyright ]; then
    pyright
    exit
fi
system_packages
rust_toolchain
[ "${1-}" != tests ] || fetch_promtool
