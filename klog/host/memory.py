"""How much memory the machine has for this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

UNKNOWN_BYTES: Final = 2 << 30
"""Taken where the machine does not say."""
_CONTROL_GROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def machine_memory_bytes() -> int:
    """The memory that this process may use: the machine's, or less by its control group."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory = UNKNOWN_BYTES
    for limit in _CONTROL_GROUPS:
        try:
            memory = min(memory, int(limit.read_text("ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return memory
