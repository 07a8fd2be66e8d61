"""Log lines for requests that klog does not serve: which one, of which client, and what to use instead.

The connection is closed, as by Kafka 4. The log limits the lines per peer; this module their length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from kio.schema.index import api_key_map

from klog.coordination.acts import CLIENT_CHARS_MAX
from klog.protocol.apis import OWN_KEYS_FROM, api_name

_HEAD: Final = struct.Struct(">hhih")


def _all(keys: Iterable[int], words: str) -> dict[int, str]:
    return dict.fromkeys(keys, words)


INSTEAD: Final = {
    **_all(range(4, 8), "klog's brokers speak a protocol of their own among themselves: Kafka's brokers cannot join"),
    **_all((24, 25, 26, 28, 61, 65, 66), "klog has no transactions: leave transactional.id and exactly-once modes out"),
    34: "`klog reassign` moves replicas",
    **_all(range(38, 42), "klog has no delegation tokens: `klog user` adds users for SCRAM"),
    **_all((55, 57, 64, 80, 81), "klog runs on ZooKeeper and has no quorum: `klog status` shows its brokers"),
    **_all((68, 69), "set group.protocol=classic"),
    **_all((71, 72, 74), "set enable.metrics.push=false; `klog metrics` shows those of brokers"),
    75: "Metadata describes topics",
    **_all((*range(76, 80), *range(83, 88), *range(90, 93)), "klog has no share groups: use a consumer group"),
    **_all((88, 89), "klog has no streams groups: set group.protocol=classic"),
}
"""By key, for readers of the log."""


def describe(frame: memoryview, software: tuple[str, str] | None, served: tuple[int, int] | None) -> str:
    """The line. ``served``: the supported versions of this request; ``software``: the client's name and version."""
    key, version, _, size = _HEAD.unpack_from(frame.tobytes()[: _HEAD.size].ljust(_HEAD.size, b"\xff"))
    client = bytes(frame[_HEAD.size : _HEAD.size + max(0, min(size, CLIENT_CHARS_MAX))]).decode("utf-8", "replace")
    library = " ".join(software)[:CLIENT_CHARS_MAX] if software else "unknown"
    if served is not None:
        instead = f"versions {served[0]} to {served[1]} are: clients find them by ApiVersions"
        if key >= OWN_KEYS_FROM:
            instead = "it is klog's own: use one version of klog on both sides"
    else:
        instead = INSTEAD.get(key, "docs/not-there.md has what is there in place of what is not")
    words = str(api_key_map.get(key, api_name(key))).split("_")
    name = "".join(word.capitalize() for word in words)
    return f"{name} ({key}) version {version} of client {client!a}, library {library!a}, is not served: {instead}"
