#!/usr/bin/env bash
# Puts together what the tests of views need on a host with a GPU and torch, which may have no network:
#   doors/python/gpu.sh FOLDER LIBRARY [PYTHON]
# LIBRARY is built with kernels for that GPU. PYTHON is the version there, 3.12 by default. There:
#   FOLDER/run [ARGUMENTS OF PYTEST]
set -euo pipefail
cd "$(dirname "$0")"
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: doors/python/gpu.sh FOLDER LIBRARY [PYTHON]" >&2; exit 2; }
folder=$1 library=$2 python=${3:-3.12}
rm -rf "$folder"
mkdir -p "$folder/site"
python3 -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: --python-version "$python" --target "$folder/site" \
    $(grep -E '^(pytest|rocksdict)==' requirements-test.txt) iniconfig packaging pluggy pygments exceptiongroup tomli typing_extensions
cp -r python/rockmill "$folder/site/"
strip -o "$folder/_rockmill.abi3.so" "$library"
xz -T0 "$folder/_rockmill.abi3.so"
cp -r tests "$folder/"
cp pyproject.toml "$folder/"
cat >"$folder/run" <<'RUN'
#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
[ ! -f _rockmill.abi3.so.xz ] || { xz -d _rockmill.abi3.so.xz && mv _rockmill.abi3.so site/rockmill/; }
PYTHONPATH=$PWD/site exec python3 -m pytest tests/test_gpu.py "$@"
RUN
chmod +x "$folder/run"
du -sh "$folder"
