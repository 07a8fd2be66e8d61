"""Processes that are known by id and start time, signalled, waited for, found again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.coordination import process
from klog.coordination.process import ProcessId
from tests.rows import each

Spawn = Callable[..., "subprocess.Popen[bytes]"]
FOREVER = "import sys, time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    children: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_a_process_is_its_id_and_its_start(spawn: Spawn) -> None:
    child = spawn(FOREVER)
    identity = ProcessId.of(child.pid)
    assert identity is not None
    assert identity.is_alive()
    reused = ProcessId(child.pid, "an earlier process")
    assert not reused.is_alive()
    assert not reused.send(signal.SIGKILL)
    assert reused.wait(0)
    assert child.poll() is None  # the one that has the id now was left alone
    assert not identity.wait(0.05)


def test_ending_in_order(spawn: Spawn) -> None:
    child = spawn(FOREVER)
    identity = ProcessId.of(child.pid)
    assert identity is not None
    assert identity.end(20)
    assert child.wait(20) == -signal.SIGTERM
    assert not identity.is_alive()
    assert identity.end(0)


def test_what_does_not_end_is_killed(spawn: Spawn) -> None:
    child = spawn(DEAF)
    identity = ProcessId.of(child.pid)
    assert identity is not None
    assert not identity.end(0.2)
    assert child.wait(20) == -signal.SIGKILL


def test_a_zombie_does_not_live(spawn: Spawn) -> None:
    child = spawn(FOREVER)
    identity = ProcessId.of(child.pid)
    assert identity is not None
    os.kill(child.pid, signal.SIGKILL)
    assert identity.wait(20)  # and nobody has reaped it
    assert not identity.is_alive()
    assert ProcessId.of(child.pid) is None


def test_a_process_lives_until_its_last_thread_is_gone(spawn: Spawn) -> None:
    """Its first thread has ended and is shown as a zombie; the other one still holds whatever the process holds."""
    child = spawn(
        "import ctypes, sys, threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('up', flush=True), time.sleep(600))).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    assert stat.rpartition(")")[2].split()[0] == "Z"
    identity = ProcessId.of(child.pid)
    assert identity is not None
    assert not identity.wait(0.05)
    assert identity.end(20)
    assert not identity.is_alive()


def test_found_by_its_note(spawn: Spawn, tmp_path: Path) -> None:
    note = tmp_path / "note"
    child = spawn(FOREVER, "--here", str(tmp_path))
    identity = ProcessId.of(child.pid)
    assert identity is not None
    process.record(note, identity)
    assert process.recorded(note, "no such argument") == identity


@each("content", [None, b"", b"{", b"7", b'{"pid":1}', b'{"pid":"x","started":1}', b'{"pid":4194000,"started":"0"}'])
def test_found_by_its_arguments_when_the_note_is_none(spawn: Spawn, tmp_path: Path, content: bytes | None) -> None:
    note = tmp_path / "note"
    if content is not None:
        note.write_bytes(content)
    child = spawn(FOREVER, "--here", str(tmp_path / "data"))
    found = process.recorded(note, "--here", str(tmp_path / "data"))
    assert found is not None
    assert found.pid == child.pid
    assert process.recorded(note, "--there", str(tmp_path / "data")) is None
    assert process.recorded(note, str(tmp_path)) is None  # a whole argument, not a part of one


def test_a_note_of_a_reused_id_is_not_believed(spawn: Spawn, tmp_path: Path) -> None:
    note = tmp_path / "note"
    child = spawn(FOREVER)
    note.write_text(json.dumps({"pid": child.pid, "started": "long ago"}))
    assert process.recorded(note, "no such argument") is None


def test_waiting_is_bounded_and_ends_with_the_process(spawn: Spawn) -> None:
    child = spawn(FOREVER)
    identity = ProcessId.of(child.pid)
    assert identity is not None
    begun = time.monotonic()
    assert not identity.wait(0.1)
    assert 0.09 <= time.monotonic() - begun < 60, "it lives for ten minutes"
    child.terminate()
    assert identity.wait(20)
