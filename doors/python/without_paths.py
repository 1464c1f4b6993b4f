#!/usr/bin/env python3
"""Replaces the folder of the checkout in a wheel's list of what is inside: without_paths.py WHEEL FOLDER.

Maturin names packages of the workspace by their folders there. Without this, wheels of two checkouts would differ.
"""

import base64
import hashlib
import sys
import zipfile
from urllib.parse import quote

wheel, checkout = sys.argv[1:]
with zipfile.ZipFile(wheel) as old:
    files = [(info, old.read(info)) for info in old.infolist()]
changed = {}
for info, data in files:
    if "/sboms/" in info.filename:
        data = data.replace(f"file://{quote(checkout)}/".encode(), b"file:///rockmill/")
        if data.count(b"file:///") > data.count(b"file:///rockmill/"):
            sys.exit(f"wheel: {info.filename} names folders outside of {checkout}")
        changed[info.filename] = data


def record(line: str) -> str:
    """The line of a file in RECORD: its name, the digest and the size."""
    name = line.split(",")[0]
    if name not in changed:
        return line
    digest = base64.urlsafe_b64encode(hashlib.sha256(changed[name]).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(changed[name])}"


with zipfile.ZipFile(wheel, "w") as new:
    for info, data in files:
        if info.filename.endswith("/RECORD"):
            data = "\n".join(map(record, data.decode().split("\n"))).encode()
        new.writestr(info, changed.get(info.filename, data), info.compress_type)
