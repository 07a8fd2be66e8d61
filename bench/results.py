"""RESULTS.md, made from one run's record and nothing else."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.bars import BARS, KLOG, Bar
from bench.run_record import KINDS, RunRecord, read_history

CEILING = "client's ceiling"
"""The name under which the figures against the null broker are kept."""

NEAR_CEILING = 0.8
"""From this share of the client's ceiling on, a rate says as much of the client as of the broker, and is marked."""

UNITS = {
    "messages_per_s": "messages/s",
    "kcat_messages_per_s": "kcat on the same data, messages/s",
    "megabytes_per_s": "MB/s",
    "connections_per_s": "connections/s",
    "broker_cpu_ms": "broker CPU, ms a connection",
    "dd_megabytes_per_s": "dd with fdatasync, MB/s",
    "of_dd": "MB/s, of dd's",
    "broker_cpu_us": "broker CPU, us a message",
    "broker_cpu_s_per_gb": "broker CPU, s a GB",
    "client_cores": "client, cores",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "undisturbed_megabytes_per_s": "producers before and after, MB/s",
    "meanwhile_megabytes_per_s": "producers meanwhile, MB/s",
    "throttle_megabytes_per_s": "the throttle, MB/s",
    "moved_megabytes_per_s": "moved meanwhile, MB/s",
    "slowed_of_throttle": "MB/s that producers lost, of the throttle's",
    "scrape_ms": "ms",
    "scrape_kilobytes": "KB",
    "seconds": "s",
    "beyond_s": "s",
    "owned_twice": "partitions owned twice",
    "commits": "commits in a window",
    "refused": "refused commits",
    "broker_cores": "broker, cores",
    "failed_requests": "refused to a client with retries",
    "longest_wait_s": "longest wait for an ack, s",
    "grown_megabytes": "grown from the one to the other, MB",
    "short_worker_megabytes": "for a twentieth of it, at most, MB",
    "long_worker_megabytes": "at most, MB",
    "batches": "batches committed",
    "producer_late_ms": "the producer's own delay at most, ms",
    "first_seconds": "the first of all, which writes the archive of classes, s",
    "spark_seconds": "Spark's start and one message, s",
    "megabytes": "broker, MB",
    "peak_megabytes": "broker at its most, MB",
    "moved_gigabytes": "after GB in and out",
    "helper_megabytes": "its ZooKeeper, MB",
}


def shown(value: float) -> str:
    """Three significant figures, thousands as k, millions as M."""
    if value >= 999_500:
        return f"{value / 1e6:.3g} M"
    if value >= 1000:
        return f"{value / 1000:.3g} k"
    return f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The median, and from the least to the greatest behind it."""
    median = shown(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({shown(min(values))} - {shown(max(values))})"


def render(record: RunRecord) -> str:
    """One run, as a page or a part of one."""
    lines = [
        f"# Results of the bench: {record.kind}",
        "",
        f"Written by `scripts/bench` on {record.date}; {record.rounds} rounds in turns after one that does not count,",
        "medians, least and greatest in parentheses. Only ratios within one run mean something. What each row does",
        "is in `bench/README.md`; earlier runs in `bench/results/history.jsonl`.",
        "",
        *_pairs("machine", record.machine),
        "",
        "| system | version | set apart from its defaults |",
        "|---|---|---|",
    ]
    for system, version in record.versions.items():
        options = ", ".join(f"`{name}={value}`" for name, value in record.options.get(system, {}).items())
        lines.append(f"| {system} | {version} | {options or '-'} |")
    lines += ["", "Sizes: " + ", ".join(f"{name} {value:g}" for name, value in record.sizes.items()) + ".", ""]
    lines += _bars(record)
    lines += _figures(record)
    for remark in record.remarks:
        lines += [f"## {remark[0]}", "", *(f"    {line}" for line in remark[1:]), ""]
    if record.notes:
        lines += ["## What did not run", "", *(f"- {note}" for note in record.notes), ""]
    return "\n".join(lines)


def _pairs(what: str, pairs: object) -> list[str]:
    assert hasattr(pairs, "items")
    return [f"The {what}: " + ", ".join(f"{name} {value}" for name, value in pairs.items()) + "."]


def _bars(record: RunRecord) -> list[str]:
    lines = [
        "## Against the bars",
        "",
        "| figure | klog | against | ratio | bar | moonshot | |",
        "|---|---|---|---|---|---|---|",
    ]
    for bar in BARS:
        value = bar.value(record)
        if value is None:
            continue
        ours = bar.ours(record)
        assert ours is not None
        sign = ">=" if bar.at_least else "<="
        theirs = record.median(bar.workload, bar.against, bar.figure) if bar.against else None
        against = f"{bar.against} {shown(theirs)}" if theirs is not None else "-"
        verdict = bar.verdict(value) + (" (at the client's ceiling)" if _at_ceiling(record, bar, ours) else "")
        ratio = f"{value:.2f}" if bar.against else "-"
        what = f"{bar.workload}: {'the worst, ' if bar.is_of_worst else ''}{UNITS[bar.figure]}"
        of = f"{bar.of} " if bar.of != KLOG and KLOG in record.versions else ""
        cells = (what, f"{of}{shown(ours)}", against, ratio, f"{sign} {bar.bar:g}")
        lines.append(f"| {' | '.join(cells)} | {bar.moonshot:g} | {verdict} |")
    return [*lines, ""]


def _at_ceiling(record: RunRecord, bar: Bar, ours: float) -> bool:
    ceiling = record.median(bar.workload, CEILING, bar.figure)
    return bar.figure == "messages_per_s" and ceiling is not None and ours >= NEAR_CEILING * ceiling


def _figures(record: RunRecord) -> list[str]:
    has_ceiling = any(CEILING in by_system for by_system in record.figures.values())
    systems = [*record.versions, *([CEILING] if has_ceiling else [])]
    lines = ["## All figures", "", f"| workload | | {' | '.join(systems)} |", "|---|---|" + "---|" * len(systems)]
    for workload, by_system in record.figures.items():
        names = [name for name in UNITS if any(name in figures for figures in by_system.values())]
        for name in names:
            cells = [record.values(workload, system, name) for system in systems]
            shown_cells = " | ".join(spread(values) if values else "" for values in cells)
            lines.append(f"| {workload if name == names[0] else ''} | {UNITS[name]} | {shown_cells} |")
    return [*lines, ""]


def write(record: RunRecord, folder: Path) -> None:
    """results/history.jsonl one line longer, and RESULTS.md written again: the last run of each kind."""
    history = folder / "results" / "history.jsonl"
    history.parent.mkdir(parents=True, exist_ok=True)
    record.append_to(history)
    newest = {one.kind: one for one in read_history(history)}
    first, *others = [render(newest[kind]) for kind in KINDS if kind in newest]
    lower = [re.sub(r"^#", "##", page, flags=re.MULTILINE) for page in others]  # a page has one title
    (folder / "RESULTS.md").write_text("\n".join([first, *lower]))
