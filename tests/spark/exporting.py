"""Exports of a test's topic without Spark: what is in one, and what `klog export verify` finds there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from klog.export.batch_writer import is_undecodable
from klog.export.files import read_stored
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice, run
from klog.export.stores.store import Store
from klog.export.verify import verify
from klog.spark.export import LocalWriter
from tests.spark.conftest import TopicOnBroker


def export(
    topic: TopicOnBroker, root: Path | str | Store, table: TableChoice | str | None = None, **options: Any
) -> list[ExportedRange]:
    """One run. ``table``: what the first one makes of the root; the name of a format will do."""
    where = str(root) if isinstance(root, Path) else root
    choice = TableChoice(table) if isinstance(table, str) else table
    return run(topic.bootstrap, [topic.name], where, LocalWriter(), table=choice, **options)


def states(root: Path | str | Store, topic: TopicOnBroker | None = None) -> list[str]:
    """Of each partition, and of each problem; with the topic, the brokers are asked too."""
    where = str(root) if isinstance(root, Path) else root
    return [row.state for row in verify(None if topic is None else topic.bootstrap, where)]


def rows_of(root: Path, *, undecodable: bool = False) -> list[dict[str, Any]]:
    """What is in the files that the manifests name, of any format, by partition and offset: messages, or beside them
    those that could not be decoded. In a plain root a reader of the folder finds those messages, and no others."""
    place = ExportRoot(str(root))
    manifests = [place.manifest(batch)[0] for batch in place.batches()]
    paths = [
        place.file_path(manifest, one.path)
        for manifest in manifests
        for one in manifest.files
        if is_undecodable(one.path) is undecodable
    ]
    if place.by_rename and not undecodable:
        there = [one.path for one in place.store.walk("data")]
        assert sorted(paths) == [path for path in there if not any(part[0] in "._" for part in path.split("/"))]
    found = [rows for path in paths for rows in read_stored(place.store, path, None)]
    rows = [row for one in found for row in one.to_pylist()]
    rows = [json.loads(row["line"]) if "line" in row else row for row in rows]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def when(step: str, act: Callable[[], object]) -> Callable[[str], None]:
    """To be called with each step of a run: at the first one of this name ``act`` is done."""
    waiting = [act]

    def reached(now: str) -> None:
        if now == step and waiting:
            waiting.pop()()

    return reached


class _Killed(BaseException):
    pass


@contextmanager
def killed_at(owner: type, act: str) -> Iterator[None]:
    """What is done here ends where it does this act, as a process that is killed does."""
    with patch.object(owner, act, side_effect=_Killed), pytest.raises(_Killed):
        yield
