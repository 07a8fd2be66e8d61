"""The results of a run as Markdown, appended to a page: figures come from the program, and never from a hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from bench.figure3.commands import Size
from bench.figure3.proof import TierRow
from klog.clock import SYSTEM_CLOCK
from klog.names import counted
from klog.render.value_texts import moment_text
from klog.storage.filesystem import translated


class Run(NamedTuple):
    """How it was run, and how it ended."""

    size: Size
    minutes: float | None
    """From when Spark ran until the front ends stopped; None: they stopped before."""
    seed: int
    chaos: bool
    faults: int
    balanced_by: str
    caught_up_s: float | None
    rows: Sequence[TierRow]
    problems: Sequence[str]


def markdown(run: Run, now_ms: int) -> str:
    """A heading, a sentence, a table with one row per tier, and what went wrong."""
    size = run.size
    live = f"{counted(size.live, 'live cluster')} of {counted(size.brokers, 'broker')}"
    how = f"chaos, seed {run.seed}, {counted(run.faults, 'fault')}" if run.chaos else "without faults"
    lasted = "ended before Spark ran" if run.minutes is None else f"{run.minutes:.1f} minutes"
    end = "not every tier caught up" if run.caught_up_s is None else f"every tier had all after {run.caught_up_s:.1f} s"
    names = [one.name for one in fields(TierRow) if one.name != "note"]
    heads = [name.replace("_ms", " ms") for name in names]
    lines = [
        f"### {moment_text(now_ms, '%Y-%m-%d %H:%M')} UTC: {size.rate:g} messages/s, {how}",
        "",
        f"{live}, front ends by {run.balanced_by}; {lasted}; at the end {end}.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(_cell(getattr(row, name)) for name in names)} |" for row in run.rows),
        *(f"\n- {one}" for one in run.problems),
    ]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def check_writable(target: Path) -> None:
    """StorageError, before a run whose results would be lost."""
    try:
        target.open("a").close()
    except OSError as error:
        raise translated(error, "append to", str(target)) from error


def append(target: Path, run: Run) -> None:
    """Behind what the file has. StorageError."""
    try:
        with target.open("a", encoding="utf-8") as file:
            file.write("\n" + markdown(run, SYSTEM_CLOCK.now_ms()))
    except OSError as error:
        raise translated(error, "append to", str(target)) from error
