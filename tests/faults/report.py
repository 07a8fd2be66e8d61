"""The results of runs: a line each on the screen, kept in a file, and the table of docs/reliability.md made from them.

``bench/results/reliability.jsonl`` has the last result of every cell, a line each, with when and on what it was run;
the page is written again from it. Nothing in the table is typed by hand.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.faults.plan import FAULTS, cells
from tests.faults.run import FACTOR, MIN_INSYNC, PARTITIONS, Result
from tests.faults.workload import CONSUMERS, PRODUCERS, RATE_S

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results" / "reliability.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: written by scripts/faults -->", "<!-- end of results -->"


def line(result: Result) -> str:
    """One run in one line, and its problems in lines below."""
    name = f"{result.plan.name:24}"
    if result.skipped:
        return f"{name} not run: {result.skipped}"
    if result.verdict is None:
        return "\n".join([f"{name} BROKEN", *(f"    {one}" for one in result.problems)])
    row = row_of(result)
    text = (
        f"{name} {'ok ' if result.is_good else 'BAD'} acked {row['acked']}, lost {row['lost']}, "
        f"duplicated {row['duplicated']}, unseen {row['unseen']}, inconsistent {row['inconsistent']}, "
        f"longest without ack {row['longest_s']:.2f} s ({row['longest_best_s']:.2f} s the best partition), "
        f"during the fault {row['during']}"
    )
    if result.late_s > 0.5:
        text += f", proxies late by {result.late_s:.1f} s, load {result.load:.0f}"
    if row["first_ack_s"] is not None:
        text += f", first ack {row['first_ack_s']:.2f} s after it"
    problems = list(result.problems)
    if not result.verdict.is_clean:
        problems += result.verdict.summary().splitlines()[1:]
    return "\n".join([text, *(f"    {one}" for one in problems)])


def row_of(result: Result) -> dict[str, Any]:
    """What is kept of a run."""
    row: dict[str, Any] = {"cell": result.plan.name, "seed": result.plan.seed, **machine()}
    if result.skipped:
        return {**row, "skipped": result.skipped}
    verdict = result.verdict
    assert verdict is not None
    kinds = verdict.kinds
    named = ("lost-write", "unseen", "duplicate", "inconsistent-offset")
    others = {kind: count for kind, count in kinds.items() if kind not in named}
    return {
        **row,
        "acked": verdict.acked,
        "unknown": verdict.unknown,
        "lost": kinds["lost-write"],
        "duplicated": kinds["duplicate"],
        "unseen": kinds["unseen"],
        "inconsistent": kinds["inconsistent-offset"],
        "other": others,
        "problems": result.problems,
        "longest_s": round(verdict.longest_without_ack_s, 2),
        "longest_best_s": round(min(result.longest_s.values(), default=0.0), 2),
        "during": verdict.acked_during_faults,
        "first_ack_s": None if result.first_ack_s is None else round(result.first_ack_s, 2),
        "whole_s": None if result.whole_s is None else round(result.whole_s, 1),
        "faults": result.done,
        "load": round(result.load, 1),
        "late_s": round(result.late_s, 2),
    }


def machine() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {_memory_gb():.0f} GB, Linux {platform.release()}",
        "versions": f"Python {sys.version.split()[0]}, librdkafka {confluent_kafka.libversion()[0]}",
    }


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def keep(results: list[Result]) -> None:
    """Put the results into the file, in the place of earlier ones of the same cells, and write the page."""
    rows = {row["cell"]: row for row in kept_in(RESULTS)}
    for result in results:
        if result.verdict is not None or result.skipped:
            rows[result.plan.name] = row_of(result)
    order = {name: at for at, name in enumerate((*cells(), *(f"secure:{name}" for name in cells())))}
    kept = sorted(rows.values(), key=lambda row: (order.get(row["cell"], len(order)), row["cell"]))
    write(kept, RESULTS, PAGE, BEGIN, table(kept), END)


def kept_in(results: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def write(rows: list[dict[str, Any]], results: Path, page: Path, begin: str, text: str, end: str) -> None:
    """The rows into their file, and the text between two lines of the page."""
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head, _, rest = page.read_text().partition(begin)
    page.write_text(f"{head}{begin}\n{text}{end}{rest.partition(end)[2]}")


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, with what they were measured on."""
    done = [row for row in rows if "skipped" not in row]
    lines = [
        "",
        f"{len(done)} cells run; in all {sum(row['acked'] for row in done)} messages acknowledged, "
        f"{sum(row['lost'] for row in done)} lost, {sum(row['duplicated'] for row in done)} duplicated, "
        f"{sum(row['unseen'] for row in done)} unseen, {sum(row['inconsistent'] for row in done)} inconsistent; "
        f"{sum(bool(row['other'] or row['problems']) for row in done)} cells with something else that is wrong.",
        "",
        f"Load: {PRODUCERS} idempotent producers with acks=all, {RATE_S} messages a second each; "
        f"{CONSUMERS} consumers; {PARTITIONS} partitions, factor {FACTOR}, min.insync.replicas {MIN_INSYNC}.",
        "Cells that begin with `secure:` are of a closed cluster: TLS and SCRAM on every connection, also between "
        "brokers, and clients with the permissions that they need and no others.",
        f"The load average is the machine's, which has {os.cpu_count()} cores: where it is far above, the times are "
        "those of a machine that was busy with other things.",
        "",
        "| cell | acked | lost | duplicated | unseen | inconsistent | longest without ack: worst, best partition |"
        " acked during the fault | first ack after it | load average | seed | run |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        where = f"{row['date']}, {row['commit']}"
        if "skipped" in row:
            lines.append(f"| {row['cell']} | not run: {row['skipped']} |||||||||| {where} |")
            continue
        first = "" if row["first_ack_s"] is None else f"{row['first_ack_s']:.2f} s"
        lines.append(
            f"| {row['cell']} | {row['acked']} | {row['lost']} | {row['duplicated']} | {row['unseen']} | "
            f"{row['inconsistent']} | {row['longest_s']:.2f} s, {row['longest_best_s']:.2f} s | {row['during']} | "
            f"{first} | {row.get('load', '')} | {row['seed']} | {where} |"
        )
    wrong = [row for row in done if row["other"] or row["problems"]]
    if wrong:
        lines += ["", "What else was wrong:", ""]
        for row in wrong:
            said = [f"{kind} {count}" for kind, count in row["other"].items()] + row["problems"]
            lines.append(f"- {row['cell']}: {'; '.join(said)}")
    lines += ["", "Faults:", "", *(f"- `{fault}`: {kind.what}" for fault, kind in FAULTS.items()), ""]
    for said in sorted({f"{row['machine']}; {row['versions']}" for row in rows}):
        lines += [f"Machine: {said}.", ""]
    return "\n".join(lines)
