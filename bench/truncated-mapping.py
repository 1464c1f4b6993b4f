"""What happens to a copy from a registered mapping whose file was truncated, by size of the copy.

Needs a GPU and cupy. Each size runs in a process of its own; a negative return code is a signal (7: SIGBUS).
"""

import subprocess
import sys

CHILD = r'''
import ctypes, mmap, os, sys, tempfile
import cupy
rt = cupy.cuda.runtime
size = int(sys.argv[1]); d = sys.argv[2]
dev = cupy.zeros(size, dtype=cupy.uint8)
fd, path = tempfile.mkstemp(dir=d); os.write(fd, b"\7" * size)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
p = libc.mmap(None, size, 1, 1, fd, 0)
assert libc.madvise(p, size, 22) == 0
rt.hostRegister(p, size, 1 | 8)
os.ftruncate(fd, 0)
s = cupy.cuda.Stream(non_blocking=True)
rt.memcpyAsync(dev.data.ptr, p, size, 1, s.ptr)
s.synchronize()
print("copied", int(dev.sum()) == 7 * size)
os.unlink(path)
'''
for folder in ("/dev/shm", "/tmp"):
    for kib in (4, 12, 32, 64, 68, 128, 256, 512, 1024, 4096):
        r = subprocess.run([sys.executable, "-c", CHILD, str(kib << 10), folder],
                           capture_output=True, text=True)
        print(folder, kib, "KiB, return code", r.returncode, r.stdout.strip())
