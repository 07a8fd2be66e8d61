"""The first connection to a cluster: of several servers, the one that answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from klog.errors import CannotConnect, UsageError
from klog.net.channel import Channel

_EXAMPLE = "write for example 127.0.0.1:9092"
_NOT_IN_HOSTS = re.compile(r"[\s/@\\\x00-\x1f\x7f\ud800-\udfff]")
"""A URL, a space, or what no resolver takes."""

STAGGER_S = 0.25
"""The next server is tried after this time without an answer: a local one answers within 5 ms, and three servers that
swallow packets cost a second instead of nine."""


def parse_bootstrap(text: str, source: str) -> list[tuple[str, int]]:
    """(host, port) of each server in ``host:port,...``; UsageError, with ``source``, otherwise.

    The port may be left out (9092); an IPv6 address with a port is written in brackets.
    """
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, "9092"
        if not host.strip("[]") or _NOT_IN_HOSTS.search(host):
            raise UsageError(f"{part!r} (from {source}) is not HOST:PORT", hint=_EXAMPLE)
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise UsageError(
                f"{part!r} (from {source}): the port must be between 1 and 65535, got {port!r}", hint=_EXAMPLE
            )
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise UsageError(f"no server named in {text!r} (from {source})", hint=_EXAMPLE)
    return servers


async def connect_any(servers: list[tuple[str, int]], connect: Callable[[str, int], Awaitable[Channel]]) -> Channel:
    """The channel of the server that answers first, tried in order and overlapping.

    Raises CannotConnect, which names every server tried, and why each failed.
    """
    failures: list[str] = []
    waiting = list(servers)
    running: set[asyncio.Task[Channel]] = set()
    try:
        while waiting or running:
            if waiting:
                host, port = waiting.pop(0)
                running.add(asyncio.ensure_future(connect(host, port)))
            done, running = await asyncio.wait(
                running, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            connected: list[Channel] = []
            for task in done:
                error = task.exception()
                if error is None:
                    connected.append(task.result())
                elif isinstance(error, CannotConnect):
                    failures.append(error.message)
                else:
                    raise error
            for surplus in connected[1:]:
                await surplus.close()
            if connected:
                return connected[0]
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, Channel):
                await result.close()
    raise CannotConnect(
        "no broker answers: " + "; ".join(failures),
        hint="is the cluster running (`klog status`)? is the address right (-B HOST:PORT)?",
    )
