"""The host's limits for a broker: memory, and file descriptors, divided among logs, connections and the rest.

Why: clients that open connections must not take the descriptor that a log needs for its next segment. A log that cannot
open a file fails; a connection that waits in the kernel's queue is only late.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

REST = 64
"""Standard streams, the listener, the event loop, the ZooKeeper session, locks, checkpoints, folders being flushed."""

UNKNOWN_BYTES: Final = 2 << 30
"""Used if the host does not tell."""
_CONTROL_GROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class Descriptors(NamedTuple):
    limit: int
    """The process's limit, `ulimit -n`."""
    files: int
    """Segment files that may be open at once."""
    connections: int


def share_out() -> Descriptors:
    """Raise the soft limit to the hard one, as servers do, and divide it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (ValueError, OSError):  # an infinite limit above what the kernel allows
        pass
    return divide(soft)


def divide(limit: int) -> Descriptors:
    """What remains beside `REST`: half for files, half for connections, at least one each."""
    files = max((limit - REST) // 2, 1)
    return Descriptors(limit, files, max(limit - REST - files, 1))


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
