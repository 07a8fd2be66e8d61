"""Batches as files of a folder: put apart by time or by a column, and cut where a file is large enough.

Limits: what a task holds in memory is bounded, whatever the messages' times: a file that is open for each of a few
hours, and `HELD_BYTES` for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from klog.errors import StorageError
from klog.export.batch_writer import FileLayout
from klog.export.files import GROUP_BYTES, FileWriter, format_named
from klog.export.files.json_values import DAY_MAX, DAY_MIN
from klog.export.partitioning import NULL_FOLDER, Partitioning, folder_text, hashed
from klog.export.stores.store import Store

OPEN_FILES_MAX: Final = 16
"""A message of yet another hour ends the file that was written to least recently; its hour may get one more later."""

HELD_BYTES: Final = 2 * GROUP_BYTES

PIECES_A_FILE: Final = 8
"""Where files are cut, at least so many pieces go into one."""

SAFETY: Final = 1.1
"""Files of one task compress alike, but not quite: by so much a file may be worse than the one before it."""

NO_DATE: Final = f"dt={NULL_FOLDER}"
"""Where the time is beyond the years that dates have; readers see a null."""

_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


class WrittenFile(NamedTuple):
    path: str
    """Relative to the folder."""
    messages: int


class _OpenFile:
    def __init__(self, sink: BinaryIO, writer: FileWriter, path: str) -> None:
        self.sink = sink
        self.writer = writer
        self.path = path
        self.messages = 0
        self.arrow_bytes = 0
        self.held_bytes = 0


class FolderWriter:
    """What one attempt of a task writes; no file's name is that of another attempt. One thread."""

    def __init__(self, store: Store, folder: str, layout: FileLayout, name: str) -> None:
        """``name``: unique, what the files' names begin with."""
        self._store = store
        self._folder = folder
        self._layout = layout
        self._partitioning = None if layout.partition_by is None else Partitioning.parse(layout.partition_by)
        self._name = name
        self._format = format_named(layout.format)
        self._group_bytes = min(GROUP_BYTES, layout.max_file_bytes or GROUP_BYTES)
        self._open: dict[str, _OpenFile] = {}
        self._written: list[WrittenFile] = []
        self._ratio = 1.0
        """A file's bytes for each of its Arrow data's; nothing is known yet, so no file gets too large."""

    def write(self, batch: pa.RecordBatch, below: str = "") -> None:
        """The rows go to the files of their times; with ``below`` to those of that folder."""
        found = [(f"{below}/", batch)] if below else self._apart(batch)
        for place, rows in found:
            for piece in self._pieces(rows):
                self._append(place, piece)

    def close(self) -> list[WrittenFile]:
        """All files are complete; their names and numbers of messages."""
        for place in list(self._open):
            self._end(place)
        return self._written

    def abandon(self) -> None:
        """Give up the files. What was written stays until `klog export gc` removes it."""
        for one in self._open.values():
            with suppress(OSError, StorageError):
                one.sink.close()
        self._open.clear()

    @contextmanager
    def _translating(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # pyarrow's too
            where = self._store.location(f"{self._folder}/{path}")
            raise StorageError(f"{where} cannot be written: {error.strerror or error}") from error

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """So small that a file can be ended near where it should be."""
        limit = self._layout.max_file_bytes
        pieces = 1 if limit is None else min(batch.num_rows, -(-batch.nbytes * PIECES_A_FILE // limit))
        rows = -(-batch.num_rows // pieces)
        for at in range(0, batch.num_rows, rows):
            yield batch.slice(at, rows)

    # --- Where a row goes ---

    def _apart(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._partitioning is None:
            yield "", batch
        elif self._partitioning.is_time:
            yield from self._by_time(batch)
        else:
            yield from self._by_column(self._partitioning, batch)

    def _by_column(self, by: Partitioning, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        column = by.values(batch)
        encoded = column.dictionary_encode()
        place_of = by.function(column.type)
        values = [place_of(value) for value in [*encoded.dictionary.to_pylist(), None]]
        if self._layout.is_table:
            places = [f"{by.label}-{hashed(value)}/" for value in values]
        else:
            places = [f"{by.label}={folder_text(value)}/" for value in values]
        found = {place: number for number, place in enumerate(dict.fromkeys(places))}
        numbers = np.array([found[place] for place in places])
        rows = numbers[np.asarray(encoded.indices.fill_null(len(places) - 1))]
        for place, number in found.items():
            index = np.flatnonzero(rows == number)
            if len(index) == len(batch):
                yield place, batch
            elif len(index):
                yield place, batch.take(pa.array(index))

    def _by_time(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        unit = _HOUR_US if self._layout.partition_by == "hour" else _DAY_US
        units = np.asarray(batch.column("timestamp").cast(pa.int64())) // unit
        first = int(units[0])
        if (units == first).all():
            yield self._place(first), batch
            return
        found, rows = np.unique(units, return_inverse=True)
        for number, value in enumerate(found.tolist()):
            yield self._place(value), batch.take(pa.array(np.flatnonzero(rows == number)))

    def _place(self, units: int) -> str:
        by_hour = self._layout.partition_by == "hour"
        days, hour = divmod(units, 24) if by_hour else (units, 0)
        date = f"dt={np.datetime64(days, 'D')}" if DAY_MIN <= days <= DAY_MAX else NO_DATE
        return f"{date}/hour={hour:02d}/" if by_hour else f"{date}/"

    # --- Files ---

    def _append(self, place: str, batch: pa.RecordBatch) -> None:
        one = self._open.pop(place, None)
        limit = self._layout.max_file_bytes
        if one is not None and limit is not None and one.messages:
            size = (one.arrow_bytes + batch.nbytes) * self._ratio
            if max(size, one.sink.tell() + batch.nbytes * self._ratio) > limit:
                self._open[place] = one
                self._end(place)
                one = None
        if one is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._end(next(iter(self._open)))
            one = self._new(place, batch.schema)
        self._open[place] = one  # the last of them, so that the first is the one that was written to least recently
        with self._translating(one.path):
            one.writer.write(batch)
        one.messages += batch.num_rows
        one.arrow_bytes += batch.nbytes
        one.held_bytes = (one.held_bytes + batch.nbytes) % self._group_bytes
        if len(self._open) > 1 and sum(each.held_bytes for each in self._open.values()) > HELD_BYTES:
            largest = max(self._open.values(), key=lambda each: each.held_bytes)
            with self._translating(largest.path):
                largest.writer.flush()
            largest.held_bytes = 0

    def _new(self, place: str, schema: pa.Schema) -> _OpenFile:
        path = f"{place}{self._name}-{len(self._written) + len(self._open):03d}{self._format.SUFFIX}"
        sink = self._store.open_output(f"{self._folder}/{path}")
        with self._translating(path):
            return _OpenFile(sink, self._format.Writer(sink, schema, self._group_bytes), path)

    def _end(self, place: str) -> None:
        one = self._open[place]
        with self._translating(one.path):
            one.writer.close()
            size = one.sink.tell()
            one.sink.close()
        del self._open[place]
        if one.arrow_bytes:
            self._ratio = min(1.0, size / one.arrow_bytes * SAFETY)
        self._written.append(WrittenFile(one.path, one.messages))
