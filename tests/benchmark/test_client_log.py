"""A client's own log: what stderr says with the times, a part of it on demand, and few lines of that for a page."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench import client_log
from bench.client_log import SHOWN_MAX, shortened

CHILD = """
import os, sys, time
from pathlib import Path
from bench.client_log import ClientLog

log = ClientLog(["every message"])
os.write(2, b"said by C\\nof every message\\n")
subprocess = os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "echo said by a child >&2")
while True:
    log.write(0.0, time.monotonic(), Path(sys.argv[1]))
    if "by a child" in Path(sys.argv[1]).read_text():
        break
log.write(time.monotonic(), time.monotonic() + 9, Path(sys.argv[2]))
log.give_back()
sys.exit("the last word")
"""


def test_what_a_process_and_its_children_say_is_kept(tmp_path: Path) -> None:
    began_s = time.monotonic()
    command = [sys.executable, "-c", CHILD, str(tmp_path / "all"), str(tmp_path / "later")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = client_log.read(tmp_path / "all")
    assert [text for _, text in lines] == ["said by C", "said by a child"]
    assert all(began_s < at < time.monotonic() for at, _ in lines)
    assert client_log.read(tmp_path / "later") == []
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["said by C", "said by a child", "the last word"]


def test_lines_alike_are_one() -> None:
    log = [
        (10.0 + number / 1000, f"%7|17.5|FAIL|rdkafka#producer-1| [thrd:x/1]: broker {number} down")
        for number in range(3)
    ]
    log.append((10.2, "[main] INFO org.apache.kafka.clients.Metadata - broker 7 down"))
    log.append((10.21, "  File somewhere, of a traceback"))
    assert shortened(log, 9.9) == [
        "100 ms: FAIL broker 0 down (and 2 alike)",
        "300 ms: kafka.clients.Metadata - broker 7 down",
    ]
    assert shortened([], 0.0) == [] and shortened(log[:1], 9.5) == ["500 ms: FAIL broker 0 down"]


def test_of_many_lines_those_around_the_silences_stay() -> None:
    words = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(300)]
    log = [(1.0 + number / 1000 + (5.0 if number >= 200 else 0.0), word) for number, word in enumerate(words)]
    found = shortened(log, 1.0)
    assert len(found) <= SHOWN_MAX
    assert f"199 ms: {words[199]}" in found and f"5200 ms: {words[200]}" in found
