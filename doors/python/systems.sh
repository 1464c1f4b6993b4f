#!/usr/bin/env bash
# Installs a wheel with the Pythons of other systems, and tests it: doors/python/systems.sh WHEEL [SUITE...]. The systems are
# Ubuntu 22.04 (jammy, Python 3.10) and Debian 13 (trixie, Python 3.13). Debootstrap puts them into the cache folder. Each has
# the newest libraries that its Python can have. Root is needed; what cannot be tested is listed as skipped.
set -euo pipefail
wheel=$(realpath "${1:?usage: doors/python/systems.sh WHEEL [SUITE...]}")
shift
[ $# -gt 0 ] || set -- jammy trixie
cd "$(dirname "$0")/../.."
cache="${XDG_CACHE_HOME:-$HOME/.cache}/rockmill/python/systems"

skip() {
    echo "tests of the Python package $*" | tee -a "${ROCKMILL_SKIPS:-/dev/null}" >&2
}

# Ubuntu's keys, which Debian 13 has as a package.
keys_of_ubuntu() {
    [ ! -e "$cache/ubuntu-archive-keyring.gpg" ] || return 0
    system trixie || return 1
    local debian="$cache/trixie"
    cp /etc/resolv.conf "$debian/etc/"
    chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c 'cd /tmp && apt-get update -qq &&
        apt-get download -qq ubuntu-keyring && dpkg -x ubuntu-keyring_*.deb ubuntu' >"$cache/jammy.log" 2>&1 &&
        cp "$debian/tmp/ubuntu/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$cache/"
}

# Makes the system of a suite, once.
system() {
    local suite=$1 root="$cache/$1" mirror=http://deb.debian.org/debian keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    local components=main
    [ ! -e "$root/complete-with-venv" ] || return 0
    rm -rf "$root"
    mkdir -p "$root"
    if [ "$suite" = jammy ]; then
        keys_of_ubuntu || return 1
        mirror=http://archive.ubuntu.com/ubuntu keyring="$cache/ubuntu-archive-keyring.gpg"
        components=main,universe
    fi
    debootstrap --variant=minbase --keyring="$keyring" --components="$components" --include=python3,python3-venv "$suite" "$root" "$mirror" >"$cache/$suite.log" 2>&1 &&
        touch "$root/complete-with-venv"
}

for suite; do
    if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
        skip "in $suite: debootstrap and root are needed"
        continue
    fi
    system "$suite" || { skip "in $suite: debootstrap could not make it, as $cache/$suite.log says"; continue; }
    root="$cache/$suite"
    version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    rm -rf "$root/rockmill"
    mkdir -p "$root/rockmill"
    git ls-files -z doors/python examples/python | xargs -0 cp --parents -t "$root/rockmill"
    cp "$wheel" "$root/rockmill/"
    # This machine's pip gets them: the system may have no way to an index. It takes no heed of what older Pythons need besides.
    # Versions are pinned for another Python.
    if [ ! -e "$root/libraries/complete" ]; then
        rm -rf "$root/libraries"
        sed 's/==.*//' doors/python/requirements-test.txt >"$root/requirements.txt"
        python3 -m pip install -q --disable-pip-version-check --only-binary :all: --python-version "$version" \
            --target "$root/libraries" -r "$root/requirements.txt" exceptiongroup tomli typing_extensions && touch "$root/libraries/complete" ||
            { skip "in $suite: pip could not install what they need"; continue; }
    fi
    # The system's own view of processes goes with its last one.
    unshare --mount --propagation private sh -c 'mount -t proc proc "$1/proc" && shift && exec chroot "$@"' - "$root" \
        "$root" env -i PATH=/usr/bin:/bin HOME=/root PYTHONPATH=/libraries PYTHONDONTWRITEBYTECODE=1 \
        sh -c 'cd /rockmill && python3 -m venv env && . env/bin/activate && pip install -q --no-index rockmill-*.whl &&
            rockmill --version && cd doors/python && python3 -VV && exec python3 -m pytest'
done
skip "without a global lock: the library of CPython 3.14t has to be built apart"
