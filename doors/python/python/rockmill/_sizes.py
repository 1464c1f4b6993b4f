"""Sizes as their users give them."""

from __future__ import annotations

import re

from rockmill._errors import UsageError

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_MEBIBYTE = 1 << 20


def in_bytes(what: str, size: int | str | None) -> int | None:
    """The bytes of a size such as ``4 << 30`` or ``"4GiB"``."""
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63):
        return size
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9]{1,12})\s*(?:([kmgt]?)i?b?)?\s*", size, re.IGNORECASE)
        if found:
            return int(found[1]) << _UNITS[(found[2] or "").lower()]
    raise UsageError(f"{what}= is {size!r}; give bytes, or a text such as \"4GiB\"")


def mebibytes(what: str, size: int | str | None, least: int) -> int | None:
    """The whole mebibytes of a size, which has at least some."""
    found = in_bytes(what, size)
    if found is None:
        return None
    if found < least * _MEBIBYTE:
        raise UsageError(f"{what}= is {found} bytes; give at least {least} MiB")
    return found // _MEBIBYTE
