"""A forked ``klog`` is what a cold one is: output, exit codes, signals, descriptors, terminal, command line."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import ROOT, ForkedProcess, fork_server, klog_process

BOTH = pytest.mark.parametrize("cold", [True, False], ids=["cold", "forked"])


def ran(*words: str, cold: bool, **options: Any) -> tuple[int, bytes, bytes]:
    process = klog_process(
        words, cold=cold, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    assert isinstance(process, ForkedProcess) is not cold
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_output_and_exit_codes_are_those_of_a_cold_start(tmp_path: Path) -> None:
    environment = {**os.environ, "KLOG_HOME": str(tmp_path), "COLUMNS": "80"}
    for words in (["--version"], ["topic", "--help"], ["status"], ["topic", "create", "-p", "x", "a"]):
        cold, forked = (ran(*words, cold=one, env=environment, cwd=tmp_path) for one in (True, False))
        assert cold == forked


def read_messages(cold: bool, **options: Any) -> subprocess.Popen[Any]:
    """A command that reads its stdin until it ends."""
    return klog_process(["offset", "import", "-", "-z", "127.0.0.1:1"], cold=cold, cwd=ROOT, **options)


@BOTH
def test_it_ends_by_signals_and_shows_its_own_words(cold: bool) -> None:
    read_end, write_end = os.pipe()
    process = read_messages(cold, stdin=read_end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(read_end)
    try:
        while not (words := psutil.Process(process.pid).cmdline()):
            assert process.poll() is None  # within exec: it is to have its words in a moment
        assert [one for one in words if one][-6:] == ["klog", "offset", "import", "-", "-z", "127.0.0.1:1"]
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL
        os.close(write_end)
    assert process.poll() == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)


def open_in(pid: int) -> set[str]:
    """The sockets and pipes that a process has open, but for its three streams."""
    links = {path.name: str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return {link for name, link in links.items() if int(name) > 2 and link.startswith(("socket:", "pipe:"))}


@BOTH
def test_it_has_a_terminal_of_its_own_and_no_other_descriptors(cold: bool) -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    process = klog_process(
        ["shell"],
        cold=cold,
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        terminal=True,
    )
    os.close(theirs)
    try:
        os.read(ours, 1)  # it is at work
        assert os.getsid(process.pid) == process.pid
        one = psutil.Process(process.pid)
        assert one.terminal() == name
        if not cold:
            assert not open_in(process.pid) & open_in(fork_server().pid)
    finally:
        process.kill()
        process.wait(20)
        os.close(ours)
