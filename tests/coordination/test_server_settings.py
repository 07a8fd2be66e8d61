"""What the embedded ZooKeeper goes by: its heap, its ensemble, and that it remembers them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from klog.admin.health.snapshot import _server
from klog.admin.zookeeper import start as start_verb
from klog.coordination.connect_string import four_letter_word
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import (
    Member,
    ServerSettings,
    default_heap_bytes,
    jvm_heap_flags,
    parse_ensemble,
    settings_of,
)
from klog.errors import Refused, UsageError
from tests.cli.runner import klog
from tests.coordination.embedded_fixture import Start
from tests.rows import each

GIB = 1 << 30
THREE = {1: Member("a", 2888, 3888), 2: Member("b", 2888, 3888), 3: Member("::1", 2888, 3888)}


@each(
    ("memory_gib", "heap_mib"),
    [(0.5, 256), (2, 512), (4, 1024), (6, 1024), (8, 1024), (16, 2048), (24, 3072), (256, 4096)],
)
def test_the_default_heap(memory_gib: float, heap_mib: int) -> None:
    assert default_heap_bytes(int(memory_gib * GIB)) == heap_mib << 20


def test_a_large_heap_has_the_collector_that_stops_it_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert jvm_heap_flags(GIB) == ["-XX:+UseG1GC", "-Xmx1024m"]
    assert jvm_heap_flags(GIB - 1) == ["-XX:+UseSerialGC", "-Xmx1023m"]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC")
    assert jvm_heap_flags(GIB) == ["-Xmx1024m"]  # with two Java does not start


def test_the_heap_is_set_remembered_and_told(start: Start) -> None:
    server = start(heap_bytes=96 << 20)
    assert heap_mb(server) in range(85, 97)
    fact = _server("127.0.0.1", server.port)
    assert (fact.mode, fact.size.heap_bytes) == ("standalone", heap_mb(server) << 20)
    size = fact.size
    assert size.nodes is not None and size.nodes > 0 and size.data_bytes is not None
    with pytest.raises(Refused, match="options"):
        start(heap_bytes=97 << 20)
    assert start() == server
    remembered = settings_of(server.directory)
    assert remembered is not None and remembered.heap_bytes == 96 << 20


def heap_mb(server: ZooKeeperServer) -> int:
    told = four_letter_word("127.0.0.1", server.port, b"envi", 5)
    return int(next(line for line in told.splitlines() if "memory.max" in line).partition("=")[2].removesuffix("MB"))


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for settings in (
        ServerSettings(2181),
        ServerSettings(2181, "0.0.0.0", 256 << 20),
        ServerSettings(2181, "10.0.0.1", None, 2, THREE),
    ):
        settings.write(tmp_path)
        assert settings_of(tmp_path) == settings
    (data / "myid").unlink()
    assert settings_of(tmp_path) is None  # not one that is alone


def test_ensembles_as_they_are_named() -> None:
    assert parse_ensemble("1=a:2888:3888, 2=b:2888:3888,3=[::1]:2888:3888") == THREE
    for wrong in (
        "",
        "1=a:2888:3888",
        "a:1:2,b:1:2",
        "1=a:1:2,1=b:1:2",
        "1=a:1,2=b:1:2",
        "0=a:1:2,2=b:1:2",
        "1=a b:1:2,2=c:1:2",
        "1=a:1:2,2=a:2:3",
        "1=a:1:1,2=b:1:2",
    ):
        with pytest.raises(UsageError, match="--ensemble"):
            parse_ensemble(wrong)


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    two = "1=a:2888:3888,2=b:2888:3888"
    for options in ({"server_id": 1}, {"ensemble": two}, {"server_id": 3, "ensemble": two}, {"heap_bytes": 1000}):
        with pytest.raises(UsageError):
            start_verb(tmp_path / "zk", tmp_path, **options)  # type: ignore[arg-type]
    assert klog("zookeeper", "start", "--dir", tmp_path / "zk", "--heap", "much").code == 2
    assert not (tmp_path / "zk").exists()


def test_a_port_in_use_is_answered_with_a_flag_that_there_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = klog("zookeeper", "start", "--dir", tmp_path / "zk", "--port", str(other.getsockname()[1]))
    assert ran.code == 1
    assert "in use" in ran.stderr
    assert "with --port" in ran.stderr
