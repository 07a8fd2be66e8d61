"""The state-change log: every line there, none in the way, and a disk that refuses costs lines and nothing else."""

from __future__ import annotations

import json
import time
from pathlib import Path

from klog.storage.state_log import FILE_NAME, KEPT_FILES, StateLog


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_bytes().splitlines()]


def test_lines_are_there_in_order_when_it_is_closed(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path)
    for number in range(500):
        state_log.write({"ts": "2026-02-01T10:00:00.000Z", "broker": 1, "kind": "é", "n": number})
    state_log.close()
    assert numbers(tmp_path / FILE_NAME) == list(range(500))
    assert state_log.dropped == 0
    state_log.write({"n": 501})  # too late is no error
    state_log.close()
    again = StateLog(tmp_path)
    again.write({"n": 500})
    again.close()
    assert numbers(tmp_path / FILE_NAME) == list(range(501))


def test_it_rotates_and_keeps_three(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path, file_bytes_max=200)
    for number in range(200):
        state_log.write({"n": number})
    state_log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [FILE_NAME, *(f"{FILE_NAME}.{number}" for number in range(1, KEPT_FILES + 1))]
    assert all((tmp_path / name).stat().st_size <= 200 for name in files)
    kept = [number for name in (*reversed(files[1:]), files[0]) for number in numbers(tmp_path / name)]
    assert kept == list(range(kept[0], 200))


def test_a_line_larger_than_a_file_is_a_file(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path, file_bytes_max=50)
    for number in range(3):
        state_log.write({"n": number, "much": "x" * 100})
    state_log.close()
    assert numbers(tmp_path / FILE_NAME) == [2]
    assert numbers(tmp_path / f"{FILE_NAME}.2") == [0]


def test_a_folder_that_is_not_there_costs_the_lines_alone(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path / "gone")
    state_log.write({"n": 1})
    state_log.close()
    assert state_log.dropped == 1


def test_it_goes_on_when_the_disk_is_back(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path / "later")
    state_log.write({"n": 1})
    deadline = time.monotonic() + 10
    while not state_log.dropped and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "later").mkdir()
    state_log.write({"n": 2})
    state_log.close()
    assert numbers(tmp_path / "later" / FILE_NAME) == [2]


def test_what_json_cannot_say_is_written_as_text(tmp_path: Path) -> None:
    state_log = StateLog(tmp_path)
    state_log.write({"n": 1, "path": tmp_path, "set": {3}})
    state_log.close()
    assert numbers(tmp_path / FILE_NAME) == [1]


def test_the_file_is_there_before_anything_happens(tmp_path: Path) -> None:
    StateLog(tmp_path).close()
    assert (tmp_path / FILE_NAME).read_bytes() == b""
