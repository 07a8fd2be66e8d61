"""`klog export run` with Spark as what reads and writes. Spark is started only when there is something to export."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from klog import errors
from klog.client.raw_fetch import Range
from klog.errors import KlogError, StorageError
from klog.ops.export import run as export_run
from klog.ops.export.root import STAGING_TTL_S
from klog.ops.export.rows import ExportedRange
from klog.ops.export.store import Store

_KLOG_ERROR = re.compile(r"klog\.errors\.(\w+): (.*)")


def run_export(
    bootstrap: str,
    topics: Sequence[str],
    root: str,
    *,
    from_range: str | None = None,
    max_messages: int | None = None,
    dry_run: bool = False,
    allow_gaps: bool = False,
    master: str | None = None,
    staging_ttl_s: float = STAGING_TTL_S,
    on_step: Callable[[str], None] = lambda step: None,
) -> list[ExportedRange]:
    """Export what is new of ``topics`` to ``root``; the rows, none where nothing is new. Blocks.

    Arguments and errors as `klog.ops.export.run.run`; ``master`` is Spark's, this machine's cores if None.
    """
    return export_run.run(
        bootstrap,
        topics,
        root,
        SparkWriter(master),
        from_range=from_range,
        max_messages=max_messages,
        dry_run=dry_run,
        fail_on_data_loss=not allow_gaps,
        staging_ttl_s=staging_ttl_s,
        on_step=on_step,
    )


class SparkWriter:
    """Writes ranges as Parquet by a Spark job. The session is started at the first write and left running."""

    def __init__(self, master: str | None = None) -> None:
        self._master = master
        self._session: Any = None

    @property
    def engine(self) -> str:
        import pyarrow
        import pyspark

        return f"spark {pyspark.__version__}, pyarrow {pyarrow.__version__}"

    def write(self, bootstrap: str, ranges: Sequence[Range], store: Store, folder: str) -> None:
        """Exactly the messages of ``ranges`` as Parquet files in ``folder`` of the store.

        Raises what a task raised, in klog's words, or StorageError with Spark's.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from klog.spark.session import start_session

        self._session = self._session or start_session(self._master)
        options = {
            "bootstrap.servers": bootstrap,
            "ranges": json.dumps(ranges),
            "includeHeaders": "true",
            "folder": store.location(folder),
        }
        try:
            rows = self._session.read.format("klog-parquet-files").options(**options).load().collect()
        except (PySparkException, Py4JError) as error:
            raise _translated(str(error)) from error
        written = {row.file for row in rows}
        for name in store.names(folder):
            if name not in written:
                store.remove(f"{folder}/{name}")  # of an attempt that failed and was made again


def _translated(text: str) -> KlogError:
    """The error of klog's that a task's traceback ends with; else Spark's first line."""
    found = _KLOG_ERROR.findall(text)
    for name, message in reversed(found):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, KlogError):
            return kind(message)
    return StorageError(f"Spark failed: {text.strip().splitlines()[0]}")
