"""The paper's experiment runs from end to end, and its page says what was measured. Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.paper import page as pages
from bench.paper.loads import Point
from bench.paper.queues import LoadFailed, samples_of
from bench.paper.reasons import page_views
from bench.paper.record import Line, Reason, Record, Stored, points_of

REPOSITORY = Path(__file__).parents[2]

PERF_TEST = """\
id: test-120000-123, starting producer #0
id: test-120000-123, time 1.000 s, sent: 20000 msg/s, returned: 0 msg/s, confirmed: 19000 msg/s
id: test-120000-123, time 2.000 s, sent: 30000 msg/s, returned: 0 msg/s, confirmed: 31000 msg/s
id: test-120000-123, time 3.000 s, sent: 0 msg/s, returned: 0 msg/s, confirmed: 0 msg/s
test stopped (Producer reached message limit)
id: test-120000-123, sending rate avg: 25000 msg/s
id: test-120000-123, receiving rate avg: 0 msg/s
"""


def test_lines_of_perf_test_are_a_course() -> None:
    assert samples_of(PERF_TEST, "sent", 50_000) == [Point(0.0, 0), Point(1.0, 20_000), Point(2.0, 50_000)]
    assert samples_of(PERF_TEST, "confirmed", 50_000)[-1] == Point(2.0, 50_000)


def test_a_short_run_of_perf_test_has_an_average_only() -> None:
    text = "\n".join(line for line in PERF_TEST.splitlines() if " time " not in line)
    assert samples_of(text, "sent", 5_000) == [Point(0.0, 0), Point(0.2, 5_000)]
    with pytest.raises(LoadFailed, match="no rate"):
        samples_of(text, "received", 5_000)


def test_a_course_is_drawn_a_point_a_second() -> None:
    course = [Point(0.0, 0), Point(0.5, 500), Point(1.0, 1000), Point(1.5, 3000), Point(2.0, 5000), Point(2.4, 5100)]
    assert points_of(course) == [[0.2, 1000.0], [1.0, 4000.0]]
    assert points_of(course[:2]) == [[0.1, 1000.0]]


def test_lines_of_a_web_site_are_of_one_length() -> None:
    assert {len(one) for one in page_views()} == {200} and page_views() == page_views()


def a_line(system: str, rate: float, batch: int | None = 1, figure: str = "4") -> Line:
    return Line(figure, system, "librdkafka", batch, "advised", "acks=all", round(rate), 1.0, [[1.0, rate]])


def test_verdicts_follow_the_figures() -> None:
    record = Record(messages=1000, limit_s=1.0)
    record.lines = [a_line("klog", 10_000), a_line("klog", 90_000, 50), a_line("activemq", 4_000)]
    record.lines += [a_line("rabbitmq classic", 6_000)]
    record.stored = [Stored("klog", "batch 50", 1000, 10.0), Stored("activemq", "flushed", 1000, 150.0)]
    record.reasons = [Reason("sendfile", [{"how": "read", "megabytes_per_s": 100.0, "cpu_s_per_gb": 0.2, "copies": 2}])]
    shown = pages.page(record)
    assert "**Batches are most of it: held.** klog at batch 50 does 9.00 x" in shown
    assert "**At least twice RabbitMQ at a batch of 1: did not hold.**" in shown
    assert "**Orders of magnitude ahead of ActiveMQ: held.** klog at batch 50 is at 22 x of ActiveMQ" in shown
    assert "**Few bytes a message: held.** 10.0 bytes" in shown
    assert "sendfile saves copies" not in shown, "one of its two ways was not measured"
    assert "The log's size" not in shown
    sizes = ((1.0, 100.0, 50.0), (2.0, 90.0, 51.0), (4.0, 95.0, 30.0))
    rows = [{"system": "klog", "log_gb": a, "messages_per_s": b, "read_messages_per_s": c} for a, b, c in sizes]
    record.reasons.append(Reason("growing", rows))
    assert "**The log's size costs nothing: did not hold.** With 4 GB in it klog's producer is at 0.95 x" in pages.page(
        record
    )
    record.lines = [replace(one, seconds=10.0) if one.batch == 50 else one for one in record.lines]
    assert "**Batches are most of it: did not hold.** klog at batch 50 does 0.90 x" in pages.page(record)


def test_the_page_is_drawn_from_the_results_alone(tmp_path: Path) -> None:
    """And the one of the documentation is what its results say."""
    kept = REPOSITORY / "docs" / "paper"
    record = Record.read(kept / "results.json")
    assert (REPOSITORY / "docs" / "paper.md").read_text() == pages.page(record)
    record.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((kept / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.long("a bench smoke")
@pytest.mark.timeout(180)
def test_smoke(tmp_path: Path) -> None:
    """klog and one peer, all of it."""
    command = [sys.executable, "-m", "bench.paper", "--peers", "klog,activemq", "--messages", "5000"]
    command += ["--seconds", "1", "--reason-seconds", "0.2", "--log-gb", "0.002", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = Record.read(tmp_path / "paper" / "results.json")
    assert record.left_out == [], done.stderr
    assert {(one.system, one.figure) for one in record.lines} == {
        (system, figure) for system in ("klog", "activemq") for figure in ("4", "5")
    }
    assert all(one.messages > 0 and one.points for one in record.lines)
    assert {one.key for one in record.reasons} == {"acks", "batch", "codec", "cache", "growing", "sendfile", "state"}
    assert all(row["messages_per_s"] > 0 for one in record.reasons if one.key != "sendfile" for row in one.rows)
    text = (tmp_path / "paper.md").read_text()
    assert "| klog, batch 50 | advised |" in text and "| activemq | advised |" in text
    for figure in ("figure-4", "figure-5"):
        assert (tmp_path / "paper" / f"{figure}.svg").stat().st_size > 5_000
        assert (tmp_path / "paper" / f"{figure}.png").stat().st_size > 5_000
