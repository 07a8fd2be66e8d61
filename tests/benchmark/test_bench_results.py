"""The page that is made from a run, and the line that is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import bars, results
from bench.run_record import RunRecord, read_history
from bench.workloads import BATCHED, TO_CONSUMER, dd_megabytes_per_s


@pytest.fixture
def record() -> RunRecord:
    record = RunRecord("2026-01-02 03:04 UTC", {"cores": "2"}, rounds=3)
    record.versions.update({"klog": "0.1.0", "kafka-4.1": "4.1.1"})
    record.options["kafka-4.1"] = {"log.flush.interval.messages": "1"}
    for ours, theirs in ((300.0, 200.0), (330.0, 220.0), (900.0, 100.0)):
        record.add(BATCHED, "klog", {"messages_per_s": ours})
        record.add(BATCHED, "kafka-4.1", {"messages_per_s": theirs})
    return record


def bar_of(figure: str, workload: str) -> bars.Bar:
    return next(bar for bar in bars.BARS if bar.workload == workload and bar.figure == figure)


def test_a_ratio_is_of_medians(record: RunRecord) -> None:
    assert bar_of("messages_per_s", BATCHED).value(record) == pytest.approx(330 / 200)


def test_a_rate_must_be_high() -> None:
    verdicts = {0.99: "**short**", 1.0: "reached", 1.49: "reached", 1.5: "moonshot"}
    assert {value: bar_of("messages_per_s", BATCHED).verdict(value) for value in verdicts} == verdicts


def test_a_latency_must_be_low() -> None:
    verdicts = {0.51: "**short**", 0.5: "reached", 0.2: "moonshot"}
    assert {value: bar_of("p99_ms", TO_CONSUMER).verdict(value) for value in verdicts} == verdicts


def test_a_bar_without_figures_has_no_line(record: RunRecord) -> None:
    page = results.render(record)
    assert bar_of("p99_ms", TO_CONSUMER).value(record) is None
    assert f"| {BATCHED}: messages/s | 330 | kafka-4.1 200 | 1.65 | >= 1 | 1.5 | moonshot |" in page
    assert TO_CONSUMER not in page


def test_a_figure_near_what_the_client_can_is_marked(record: RunRecord) -> None:
    record.add(BATCHED, results.CEILING, {"messages_per_s": 400.0})
    assert "moonshot (at the client's ceiling)" in results.render(record)


def test_the_page_has_options_spread_and_what_did_not_run(record: RunRecord) -> None:
    record.notes.append("kafka-3.9 is left out: no mvn")
    page = results.render(record)
    assert "| kafka-4.1 | 4.1.1 | `log.flush.interval.messages=1` |" in page
    assert "330 (300 - 900)" in page
    assert "- kafka-3.9 is left out: no mvn" in page


def test_a_worst_figure_is_held_against_a_bar_of_its_own(record: RunRecord) -> None:
    row = bars.stock("leader", "java")
    for seconds in (0.1, 0.2, 0.7):
        record.add(row, bars.KLOG_3, {"seconds": seconds})
    page = results.render(record)
    assert f"| {row}: s | klog x 3 0.2 | - | - | <= 0.3 | 0.15 | reached |" in page
    assert f"| {row}: the worst, s | klog x 3 0.7 | - | - | <= 0.6 | 0.3 | **short** |" in page


def test_a_row_names_the_system_that_is_not_klog_with_its_defaults(record: RunRecord) -> None:
    record.add(BATCHED, bars.NO_FLUSH, {"messages_per_s": 440.0})
    page = results.render(record)
    assert f"| {BATCHED}: messages/s | 330 | kafka-4.1 200 | 1.65 |" in page
    assert f"| {BATCHED}: messages/s | klog-no-flush 440 | kafka-4.1 200 | 2.20 |" in page


def test_dd_writes_what_it_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    assert dd_megabytes_per_s(tmp_path, 1.4) > 0
    assert list(tmp_path.iterdir()) == []


def test_what_was_seen_besides_is_shown_and_kept(record: RunRecord, tmp_path: Path) -> None:
    record.remarks.append(["java waited 0.70 s", "9 ms: Node 1 disconnected", "<b> is text"])
    page = results.render(record)
    assert "## java waited 0.70 s\n\n    9 ms: Node 1 disconnected\n    <b> is text\n" in page
    results.write(record, tmp_path)
    assert read_history(tmp_path / "results" / "history.jsonl")[0].remarks == record.remarks


def test_the_history_grows_by_a_line_a_run(record: RunRecord, tmp_path: Path) -> None:
    results.write(record, tmp_path)
    results.write(record, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "results" / "history.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert lines[1]["figures"][BATCHED]["klog"]["messages_per_s"] == [300, 330, 900]


def test_numbers_have_three_figures() -> None:
    texts = {0.1234: "0.123", 999.4: "999", 1500: "1.5 k", 999_600: "1 M", 2_340_000: "2.34 M"}
    assert {value: results.shown(value) for value in texts} == texts
