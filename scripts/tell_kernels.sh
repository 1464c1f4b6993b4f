#!/usr/bin/env bash
# Runs a command, and says every 5 seconds for how long CUDA's compiler has run. Cargo shows nothing of what a build script
# does, and kernels for six GPU architectures take minutes.
#   scripts/tell_kernels.sh cargo build ..
set -euo pipefail

tell_progress() {
    local began=
    # The last pause outlives the command, and must hold no pipe open.
    while sleep 5 >/dev/null 2>&1; do
        if grep -qsxE 'nvcc|cudafe\+\+|cicc|ptxas|fatbinary' /proc/[0-9]*/comm; then
            : "${began:=$SECONDS}"
            echo "kernels for GPUs: $((SECONDS - began + 5)) s" >&2
        fi
    done
}
tell_progress &
progress=$!
trap 'kill "$progress" 2>/dev/null || true' EXIT
"$@"
