"""A crowd that asks for all schemas and reads nothing: answers are made as they are taken, and others are served."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import tracemalloc
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import pytest

from klog.coordination.acts import Actor
from klog.coordination.schemas import Schema, Subject, Version
from klog.net import http_server
from klog.net.http_server import CONNECTIONS_MAX, HttpServer
from klog.schemas.http import HttpRegistry
from klog.schemas.registry import Registry

SCHEMAS, SCHEMA_BYTES = 230, 240_000
BYTES_MAX = 100_000_000
SOON_S = http_server.ANSWER_S / 3
"""An answer that nobody takes gives way long before its time is over."""


class Large:
    """A registry of many subjects, each with one large schema, which is made when it is asked for."""

    def __init__(self) -> None:
        self.made = 0

    def acting(self, actor: Actor) -> Large:
        return self

    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        every = (f"s{number:03}" for number in range(1, SCHEMAS + 1))
        return [
            Subject(name, None, 1, (Version(1, int(name[1:])),)) for name in every if names is None or name in names
        ]

    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        found = {one: Schema(one, "AVRO", str(one).ljust(SCHEMA_BYTES, ".")) for one in ids}
        self.made += len(found)
        return found


@pytest.fixture
def registry() -> Large:
    return Large()


@pytest.fixture
def server(registry: Large) -> Iterator[HttpServer]:
    server = HttpServer.open(HttpRegistry(cast(Registry, registry)), "127.0.0.1", 0, what="schemas", flag="--port")
    yield server
    server.close()


def get(server: HttpServer, path: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"http://{server.address}{path}", timeout=60) as answer:
        found: list[dict[str, object]] = json.load(answer)
        return found


def test_all_of_it_comes_to_who_reads(server: HttpServer) -> None:
    rows = get(server, "/schemas")
    assert [(one["subject"], one["version"], one["id"]) for one in rows] == [
        (f"s{number:03}", 1, number) for number in range(1, SCHEMAS + 1)
    ]
    assert len(str(rows[-1]["schema"])) == SCHEMA_BYTES
    assert [one["id"] for one in get(server, "/schemas?subjectPrefix=s23&latestOnly=true")] == [230]
    assert get(server, "/schemas?subjectPrefix=x") == []


def test_a_crowd_that_reads_nothing(server: HttpServer, registry: Large) -> None:
    host, _, port = server.address.rpartition(":")
    tracemalloc.start()
    try:
        with contextlib.ExitStack() as closing:
            for _ in range(CONNECTIONS_MAX):
                peer = socket.socket()
                closing.enter_context(peer)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.connect((host, int(port)))
                peer.sendall(b"GET /schemas HTTP/1.0\r\n\r\n")
            made = -1
            while registry.made != made:
                made = registry.made
                time.sleep(0.5)
            assert made < CONNECTIONS_MAX * SCHEMAS / 4
            assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
            began_s = time.monotonic()
            assert get(server, "/subjects")[0] == "s001"  # type: ignore[comparison-overlap]
            assert time.monotonic() - began_s < SOON_S
    finally:
        tracemalloc.stop()
