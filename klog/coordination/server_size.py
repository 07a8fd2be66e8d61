"""The size of a ZooKeeper server's data, and its heap; from its words ``mntr`` and ``envi``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.coordination.connect_string import four_letter_word
from klog.coordination.server_settings import heap_needed_bytes

if TYPE_CHECKING:
    import ssl


RECENT_BYTES: Final = 64 << 20
"""In its heap ZooKeeper keeps its last 500 transactions, of 128 KiB each (`group_writer.TOGETHER_BYTES_MAX`)."""
FULL_SHARE: Final = 0.5
"""Part of the heap beyond which brokers refuse data that clients could grow without bound
(`klog.server.zookeeper_admission`). The rest is for requests under way, and for the collector."""


class ServerSize(NamedTuple):
    """None: unknown (``4lw.commands.whitelist``)."""

    nodes: int | None = None
    data_bytes: int | None = None
    """Paths included."""
    heap_bytes: int | None = None

    def share(self, more_bytes: int = 0) -> float | None:
        """The part of the heap, without its recent transactions, taken by its data and ``more_bytes``."""
        if self.nodes is None or self.data_bytes is None or not self.heap_bytes:
            return None
        room_bytes = max(self.heap_bytes - RECENT_BYTES, self.heap_bytes // 4)
        return (heap_needed_bytes(self.nodes, self.data_bytes) + more_bytes) / room_bytes


def server_size(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None = None) -> ServerSize:
    """Ask a server; with ``context`` over TLS. Raises OSError."""
    kept = four_letter_word(host, port, b"mntr", timeout_s, context)
    runs_in = four_letter_word(host, port, b"envi", timeout_s, context)
    heap_mb = _number(r"^os\.memory\.max=(\d{1,15})MB$", runs_in)
    return ServerSize(
        _number(r"^zk_znode_count\t(\d{1,15})$", kept),
        _number(r"^zk_approximate_data_size\t(\d{1,15})$", kept),
        None if heap_mb is None else heap_mb << 20,
    )


def _number(pattern: str, answer: str) -> int | None:
    found = re.search(pattern, answer, re.MULTILINE)
    return None if found is None else int(found[1])
