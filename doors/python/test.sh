#!/usr/bin/env bash
# Tests Python's package: doors/python/test.sh FOLDER LIBRARY [ARGUMENTS OF PYTEST]. The package is put together in FOLDER
# from the sources and LIBRARY, which cargo has built. The Python is the one of scripts/setup.sh python. PROGRAM="bench.py"
# runs that file in place of pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 2 ] || { echo "usage: doors/python/test.sh FOLDER LIBRARY [ARGUMENTS OF PYTEST]" >&2; exit 2; }
folder=$1 library=$2
shift 2

python=$(scripts/setup.sh python)
if [ -z "$python" ]; then
    echo "tests of the Python package: pip could not install what they need" >>"${ROCKMILL_SKIPS:-/dev/null}"
    exit 0
fi
rm -rf "$folder/rockmill"
mkdir -p "$folder"
cp -r doors/python/python/rockmill "$folder/"
ln -s "$(realpath "$library")" "$folder/rockmill/_rockmill.abi3.so"
ROCKMILL_PYRIGHT=$(scripts/setup.sh pyright)
export ROCKMILL_PYRIGHT
cd doors/python
PYTHONPATH=$(realpath "$folder") PYTHONDONTWRITEBYTECODE=1 "$python" ${PROGRAM:--m pytest} "$@"
