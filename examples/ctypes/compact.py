#!/usr/bin/env python3
"""Compacts a database through RocksDB's C API with Rockmill:

    compact.py LIBROCKSDB LIBROCKMILL_ATTACH FOLDER

LIBROCKSDB is a shared library of RocksDB 10.10 or newer, and make install installs LIBROCKMILL_ATTACH.
"""

import ctypes
import json
import sys

rocksdb_path, attach_path, folder = sys.argv[1:]
# RTLD_GLOBAL: Rockmill looks RocksDB's functions up in the whole process.
rocksdb = ctypes.CDLL(rocksdb_path, mode=ctypes.RTLD_GLOBAL)
rockmill = ctypes.CDLL(attach_path)
for function in ("rocksdb_options_create", "rocksdb_open", "rocksdb_writeoptions_create", "rocksdb_flushoptions_create"):
    getattr(rocksdb, function).restype = ctypes.c_void_p
rockmill.rm_attach_stats_json.restype = ctypes.c_char_p


def call(function, *arguments):
    """Calls a function whose last argument is char** of an error."""
    error = ctypes.c_char_p()
    result = function(*arguments, ctypes.byref(error))
    if error.value is not None:
        sys.exit(error.value.decode())
    return result


SETTINGS = b"device=auto;min_job_bytes=0"
options = ctypes.c_void_p(rocksdb.rocksdb_options_create())
rocksdb.rocksdb_options_set_create_if_missing(options, 1)
call(rockmill.rm_attach, options, SETTINGS)

db = ctypes.c_void_p(call(rocksdb.rocksdb_open, options, folder.encode()))
write = ctypes.c_void_p(rocksdb.rocksdb_writeoptions_create())
flush = ctypes.c_void_p(rocksdb.rocksdb_flushoptions_create())
for file in range(4):
    for number in range(1000):
        key, value = b"key%d" % (number * (file + 1)), b"value%d" % file
        call(rocksdb.rocksdb_put, db, write, key, ctypes.c_size_t(len(key)), value, ctypes.c_size_t(len(value)))
    call(rocksdb.rocksdb_flush, db, flush)
rocksdb.rocksdb_compact_range(db, None, ctypes.c_size_t(0), None, ctypes.c_size_t(0))
print(json.loads(call(rockmill.rm_attach_stats_json, SETTINGS))["jobs_done"], "jobs done")
rocksdb.rocksdb_close(db)
