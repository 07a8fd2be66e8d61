"""Pages of a file in the page cache, by ``cachestat`` (Linux 6.5), which Python does not wrap.

One call answers for a range of any length; probing pages with ``preadv2(RWF_NOWAIT)`` costs one call each.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from typing import Final

_CACHESTAT: Final = 451
"""The same number on every architecture."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Statistics(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


_syscall = ctypes.CDLL(None, use_errno=True).syscall if platform.system() == "Linux" else None
_works = _syscall is not None


def cached_bytes(descriptor: int, position: int, size: int) -> int | None:
    """Bytes of the range that are cached; None if the kernel cannot tell.

    Any thread.
    """
    global _works
    if not _works:
        return None
    assert _syscall is not None
    first = position - position % mmap.PAGESIZE
    asked = _Range(first, position + size - first)
    found = _Statistics()
    if _syscall(_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        _works = False
        return None
    pages = -(-(position + size - first) // mmap.PAGESIZE)
    # All pages or not enough: the first and the last are touched in part only.
    return size if found.cached >= pages else min(int(found.cached) * mmap.PAGESIZE, size - 1)
