"""Batches of a stream into a table, each killed with SIGKILL before another act of the store; a process of its own.

    python -m tests.spark.killed_stream ROOT iceberg|delta

Batch N is killed before its Nth act that changes something, then written again, as a query does that is started again.
The last one has fewer acts, and is not killed. Prints the number of batches. Each process is a fork of this one: what
they load is loaded once. A frame of Spark's is stood in for, which a kill of the driver takes away in any case.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import deltalake  # noqa: F401
import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog.sql  # noqa: F401

from klog.export.run import TableChoice
from klog.export.stores.local import LocalStore
from klog.streams.batch import Batch
from klog.streams.export_sink import ExportSink
from tests.spark.killed_export import forked

ACTS: Final = ("create", "make_folder", "open_output", "remove", "rename", "replace", "sync")
ROWS: Final = 3


class Frame:
    """As much of a DataFrame, and of its writer, as the sink uses."""

    columns = ("batch_number", "row")

    def __init__(self, number: int) -> None:
        self.write = self
        self._rows = pa.table({"batch_number": [number] * ROWS, "row": range(ROWS)})

    def save(self, folder: str) -> None:
        pq.write_table(self._rows, f"{folder}/part-00000.parquet")

    def __getattr__(self, setting: str) -> Callable[..., Frame]:
        return lambda *_: self


SESSION: Final = SimpleNamespace(version="4", conf=SimpleNamespace(get=lambda name: "", set=lambda name, value: None))


def write(root: str, table: str, number: int, killed_before: int | None) -> None:
    acts = itertools.count()

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any, **named: Any) -> Any:
            if next(acts) == killed_before:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*given, **named)

        return done

    for name in ACTS:
        setattr(LocalStore, name, dying(getattr(LocalStore, name)))
    ExportSink(root, TableChoice(table)).write(Frame(number), Batch(SESSION, "query", number, LocalStore(Path(root))))


def main(root: str, table: str) -> int:
    for number in range(100):
        if not (code := forked(partial(write, root, table, number, number))):
            print(number + 1)
            return 0
        if code != -signal.SIGKILL or forked(partial(write, root, table, number, None)):
            break
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
