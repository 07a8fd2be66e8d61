"""The results of faults in the pipeline: lines on the screen, kept in a file, a table of docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.faults.report import PAGE, RESULTS, kept_in, machine, write

KEPT = RESULTS.with_name("reliability-pipeline.jsonl")
BEGIN, END = "<!-- pipeline: written by scripts/faults --pipeline -->", "<!-- end of pipeline -->"

WHAT = {
    "driver": "the exporting process killed with -9, at its named steps, as it writes, and at random times",
    "worker": "Spark's Python workers killed with -9 during the write step",
    "broker": "the broker killed with -9 during the write step, and started again",
}


@dataclass
class PipelineResult:
    """What a cell showed. The sums are over all its runs after a fault: 0 unless one of them left something wrong."""

    cell: str
    faults: int = 0
    where: Counter[str] = field(default_factory=Counter)
    """What the faults met, or what the faulty runs said."""
    runs: int = 0
    """Runs that had to make the export whole."""
    messages: int = 0
    """In the log at the end."""
    missing: int = 0
    doubled: int = 0
    changed: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return bool(self.faults) and not (self.missing or self.doubled or self.changed or self.problems)


def say(result: PipelineResult) -> None:
    met = "; ".join(f"{what} {count}" for what, count in sorted(result.where.items()))
    print(
        f"{result.cell:10} {'ok ' if result.is_good else 'BAD'} {result.faults} faults, {result.runs} runs after them, "
        f"{result.messages} messages, missing {result.missing}, doubled {result.doubled}, changed {result.changed}, "
        f"{result.seconds:.0f} s ({met})",
        *(f"    {one}" for one in result.problems),
        sep="\n",
        flush=True,
    )


def keep(result: PipelineResult, seed: int) -> None:
    """Put it in the place of an earlier one of the same cell, and write the table."""
    figures = vars(result) | {"where": dict(sorted(result.where.items())), "seconds": round(result.seconds)}
    row = {"cell": result.cell, "seed": seed, **figures, **machine()}
    rows = {one["cell"]: one for one in kept_in(KEPT)} | {result.cell: row}
    kept = [rows[name] for name in WHAT if name in rows]
    write(kept, KEPT, PAGE, BEGIN, table(kept), END)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "",
        f"{sum(row['faults'] for row in rows)} faults, {sum(row['runs'] for row in rows)} runs after them; in all "
        f"{sum(row['missing'] for row in rows)} messages missing, {sum(row['doubled'] for row in rows)} doubled, "
        f"{sum(row['changed'] for row in rows)} changed.",
        "",
        "| cell | faults | met | runs after | messages in the log | missing | doubled | changed | seed | run |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        met = "; ".join(f"{what} {count}" for what, count in row["where"].items())
        lines.append(
            f"| {row['cell']} | {row['faults']} | {met} | {row['runs']} | {row['messages']} | {row['missing']} | "
            f"{row['doubled']} | {row['changed']} | {row['seed']} | {row['date']}, {row['commit']} |"
        )
    if wrong := [row for row in rows if row["problems"]]:
        lines += ["", "What else was wrong:", "", *(f"- {row['cell']}: {'; '.join(row['problems'])}" for row in wrong)]
    return "\n".join([*lines, "", *(f"- `{row['cell']}`: {WHAT[row['cell']]}" for row in rows), "", ""])
