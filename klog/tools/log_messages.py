"""``klog log dump --messages``: the messages in segment files as lines of JSON, without a broker.

The lines are those of `klog tail --output jsonl`. Files are only read. What cannot be read (a damaged range, a batch
whose records are invalid) becomes a note, and the dump goes on behind it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import CorruptBatch, KlogError
from klog.names import counted
from klog.record.batch import CONTROL
from klog.record.records import Record, each_record
from klog.render.jsonl import Content, to_line
from klog.storage.filesystem import OsLogFile, open_to_read
from klog.storage.partition_folder import parse_folder_name
from klog.storage.segment import base_address_of
from klog.tools.log_range import LogRange
from klog.tools.log_survey import FAULTS, Batch, find_folders

if TYPE_CHECKING:
    from klog.tools.message_decoder import MessageDecoder


class Line(NamedTuple):
    """A message; or with ``note`` what there is in place of messages. ``is_fault``: damage."""

    text: str = ""
    note: str | None = None
    is_fault: bool = False


def dump_messages(
    path: str | os.PathLike[str], within: LogRange, decoder: MessageDecoder | None = None
) -> Iterator[Line]:
    """The messages in the range, in the order of offsets, one partition after the other.

    Raises NoSuchThing and UsageError for the path, StorageError, and what the decoder's schemas raise (ZooKeeper may be
    lost); never for what is in the files.
    """
    for folder, segments in find_folders(path):
        name = parse_folder_name(Path(folder).name)
        topic, partition = (Path(folder).name, None) if name is None else name
        files = _Files()
        started = within.from_ms is None
        for event in within.survey(folder, segments):
            if not isinstance(event, Batch):
                what = f"{event.address} to {event.end}: {event.state}, {event.reason}"
                yield Line(note=f"{event.file}: {what}", is_fault=event.state in FAULTS)
                continue
            if event.header.attributes & CONTROL:
                yield Line(note=f"{event.file}: {event.address} is a control batch, without messages")
                continue
            try:
                for record in files.records(event):
                    if within.to_offset is not None and record.offset >= within.to_offset:
                        break
                    if within.to_ms is not None and record.timestamp_ms >= within.to_ms:
                        break
                    if within.from_offset is not None and record.offset < within.from_offset:
                        continue
                    started = started or within.from_ms is None or record.timestamp_ms >= within.from_ms
                    if started:
                        yield Line(_line(topic, partition, record, decoder))
            except _Unreadable as error:
                count = counted(event.header.count, "message")
                what = f"the batch at {event.address}, of {count}, cannot be read further: {error}"
                yield Line(note=f"{event.file}: {what}", is_fault=True)


def _line(topic: str, partition: int | None, record: Record, decoder: MessageDecoder | None) -> str:
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    content = Content(record.key, record.value, list(record.headers), timestamp_ms)
    line = to_line(topic, partition, record.offset, content)
    if decoder is None:
        return line
    return json.dumps({**json.loads(line), **decoder.decoded(record)}, ensure_ascii=False, separators=(",", ":"))


class _Unreadable(Exception):
    """A batch, from some record on."""


class _Files:
    """The segment file that is read, open until the next one is."""

    def __init__(self) -> None:
        self._file: OsLogFile | None = None

    def records(self, batch: Batch) -> Iterator[Record]:
        """Raises _Unreadable, after the records before the damage."""
        try:
            yield from self._records(batch)
        except KlogError as error:
            raise _Unreadable(error.message) from error

    def _records(self, batch: Batch) -> Iterator[Record]:
        if self._file is None or self._file.path != batch.file:
            self._file = open_to_read(batch.file)
        base = base_address_of(Path(batch.file).name) or 0
        size = batch.header.size_bytes
        data = self._file.read_at(batch.address - base, size)
        if len(data) < size:
            raise CorruptBatch("its bytes are no longer in the file")
        return each_record(data)


def write_lines(lines: Iterator[Line], write: Callable[[bytes], object], say: Callable[[str], None]) -> tuple[int, int]:
    """Write each message, and tell the notes; the numbers of messages and of faults."""
    messages = faults = 0
    for line in lines:
        if line.note is None:
            write(line.text.encode("utf-8", "backslashreplace") + b"\n")
            messages += 1
        else:
            say(line.note)
            faults += line.is_fault
    return messages, faults
