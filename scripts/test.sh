#!/usr/bin/env bash
# Makes targets of the Makefile one after the other, up to the first that fails, and prints in any case how
# long each took:
#   scripts/test.sh TARGET...
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: scripts/test.sh TARGET..." >&2; exit 2; }

lines=()
part=
report() {
    [ -z "$part" ] || lines+=("$(line "$part" "$((EPOCHSECONDS - began))" stopped)")
    printf '\n%-32s %7s\n' part seconds
    printf '%s\n' "${lines[@]}" "$(line all "$((EPOCHSECONDS - all_began))" "$1")"
}
line() {
    printf '%-32s %7d %s' "$1" "$2" "$3"
}

all_began=$EPOCHSECONDS
trap 'report stopped; exit 130' INT TERM
for part; do
    began=$EPOCHSECONDS
    "${MAKE:-make}" --no-print-directory "$part"
    code=$?
    took=$((EPOCHSECONDS - began))
    if [ $code -ne 0 ]; then
        lines+=("$(line "$part" "$took" FAILED)")
        part=
        report FAILED
        exit $code
    fi
    lines+=("$(line "$part" "$took" ok)")
done
part=
report ok
