"""A child of the bench: one Spark session, in which reads and exports are timed one at a time.

    python -m bench.pipeline_session BOOTSTRAP FOLDER [JAR...]

Tells `ready` and its process id. Told `count|noop|parquet SYSTEM TOPIC`, `direct TOPIC`, `decoded TOPIC`,
`small TOPIC ROOT`, `range TOPIC TO` it does so and tells `done SECONDS ROWS`, or `failed` and what was wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.children import tell, told
from bench.export_rate import write_step_s
from klog.spark.decoding import Decode
from klog.spark.export import run_export
from klog.spark.running.session import start_session

PEER = "spark-kafka"
FORMATS = {"klog": "klog", PEER: "kafka"}
"""A system of the bench, and what Spark calls it."""

WHOLE = str(1 << 40)
"""Of `splitBytes`: a range is one task, however long."""

_numbers = count(1)


class Session:
    """Every order returns (seconds, rows): rows that were counted where they arrived, -1 where nothing keeps them."""

    def __init__(self, bootstrap: str, folder: Path, jars: list[str]) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        settings = {"spark.jars": ",".join(jars), "spark.driver.extraClassPath": ":".join(jars)} if jars else {}
        self._spark = start_session(settings=settings)
        self._orders: dict[str, Callable[..., tuple[float, int]]] = {
            "count": self._count,
            "noop": self._noop,
            "parquet": self._parquet,
            "direct": self._direct,
            "decoded": self._decoded,
            "small": self._small,
            "range": self._range,
        }

    def obey(self, order: str, *words: str) -> tuple[float, int]:
        return self._orders[order](*words)

    def _frame(self, system: str, **options: str) -> Any:
        reader = self._spark.read.format(FORMATS[system]).option("kafka.bootstrap.servers", self._bootstrap)
        return reader.options(**options).load()

    @contextmanager
    def _fresh(self) -> Iterator[Path]:
        """A folder that is not there yet, and not any more afterwards."""
        folder = self._folder / f"out-{next(_numbers)}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _count(self, system: str, topic: str) -> tuple[float, int]:
        began = time.perf_counter()
        rows = self._frame(system, subscribe=topic).count()
        return time.perf_counter() - began, rows

    def _noop(self, system: str, topic: str) -> tuple[float, int]:
        return _to_noop(self._frame(system, subscribe=topic)), -1

    def _parquet(self, system: str, topic: str) -> tuple[float, int]:
        """By Spark's own writer, with its defaults."""
        frame = self._frame(system, subscribe=topic)
        with self._fresh() as folder:
            seconds = _timed(lambda: frame.write.parquet(str(folder)))
            return seconds, sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))

    def _direct(self, topic: str) -> tuple[float, int]:
        """The write step of an export."""
        with self._fresh() as root:
            seconds = write_step_s(self._bootstrap, topic, str(root))
            return seconds, sum(pq.read_metadata(path).num_rows for path in root.rglob("*.parquet"))

    def _decoded(self, topic: str) -> tuple[float, int]:
        """The same, Avro values as typed columns; only rows that could be decoded are counted."""
        with self._fresh() as root:
            seconds = write_step_s(self._bootstrap, topic, str(root), decode=Decode("avro"))
            decoded = (path for path in root.rglob("*.parquet") if "_undecodable" not in path.parts)
            return seconds, sum(pq.read_metadata(path).num_rows for path in decoded)

    def _small(self, topic: str, root: str) -> tuple[float, int]:
        """One whole run, but for the start of Spark."""
        began = time.perf_counter()
        rows = run_export(self._bootstrap, [topic], root)
        return time.perf_counter() - began, sum(row.messages or 0 for row in rows)

    def _range(self, topic: str, to: str) -> tuple[float, int]:
        """Partition 0 below an offset, as one task."""
        wanted = json.dumps([[topic, 0, 0, int(to)]])
        return _to_noop(self._frame("klog", ranges=wanted, splitBytes=WHOLE)), -1


def _to_noop(frame: Any) -> float:
    return _timed(lambda: frame.write.format("noop").mode("overwrite").save())


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main(bootstrap: str, folder: str, *jars: str) -> None:
    session = Session(bootstrap, Path(folder), list(jars))
    tell("ready", os.getpid())
    for order in told():
        try:
            seconds, rows = session.obey(*order)
        except Exception as error:  # the bench goes on with the next
            tell("failed", type(error).__name__, *str(error).split()[:60])
        else:
            tell("done", f"{seconds:.6f}", rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
