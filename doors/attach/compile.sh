#!/usr/bin/env bash
# Compiles librockmill_attach.so into a folder that holds librockmill.so:
#   doors/attach/compile.sh FOLDER
set -euo pipefail
folder=$(realpath "${1:?usage: doors/attach/compile.sh FOLDER}")
cd "$(dirname "$0")/../.."
cc -O2 -s -fPIC -shared -Wall -Wextra -Werror -I include -o "$folder/librockmill_attach.so" doors/attach/attach.c \
    -Wl,-soname,librockmill_attach.so -Wl,-z,nodelete -L "$folder" -lrockmill -ldl -lpthread -Wl,-rpath,'$ORIGIN'
