# Functions for scripts that run programs, kill them and wait for what they measure. Measure.java writes it. TMPDIR holds
# what they write.
readonly LONGEST_S=${ROCKMILL_SECONDS:-1800}
work=$(mktemp -d)
broker=
program=
trap 'for process in $program $broker; do kill -9 "$process" 2>/dev/null || true; done; rm -rf "$work"' EXIT

# start NAME COMMAND..: NAME.log gets its output.
start() {
    "${@:2}" >"$1.log" 2>&1 &
    program=$!
}

# wait_until NAME CONDITION: until NAME.json fulfils a condition of Python.
wait_until() {
    local deadline=$((EPOCHSECONDS + LONGEST_S))
    until [ -f "$1.json" ] && python3 -c 'import json, sys
from collections import defaultdict
sys.exit(not eval(sys.argv[2], {}, defaultdict(int, json.load(open(sys.argv[1])))))' "$1.json" "$2"; do
        kill -0 "$program" 2>/dev/null && [ $EPOCHSECONDS -lt $deadline ] || fail "$1"
        sleep 0.3
    done
}

# finish NAME: waits for the end of the program.
finish() {
    wait "$program" || fail "$1"
    program=
}

kill_program() {
    kill -9 "$program"
    wait "$program" 2>/dev/null || true
}

fail() {
    echo "systems: ${1##*/} of $version has failed" >&2
    tail -n 40 "$1.log" >&2
    exit 1
}

# simple_logger CLASSPATH: the logger for its version of slf4j.
simple_logger() {
    local api
    api=$(tr ':' '\n' <<<"$1" | sed -n 's/.*slf4j-api-\(.*\)\.jar/\1/p')
    maven "org/slf4j/slf4j-simple/$api/slf4j-simple-$api.jar" 2>/dev/null
}
