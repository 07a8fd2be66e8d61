"""``klog log dump --messages``: the messages in segment files as lines of JSON, without a broker.

The lines are those of `klog tail --output jsonl`. Files are only read. What cannot be read (a damaged range, a batch
whose records are invalid) becomes a note, and the dump goes on behind it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from klog.errors import CorruptBatch, KlogError
from klog.names import counted
from klog.record.records import Record, each_record
from klog.render.jsonl import Content, to_line
from klog.storage.filesystem import LogFile, open_to_read
from klog.storage.partition_folder import parse_folder_name
from klog.storage.segment import base_address_of
from klog.tools.log_survey import FAULTS, Batch, LogRange, find_folders

if TYPE_CHECKING:
    from klog.tools.schemas import MessageDecoder

Note = Callable[[str, bool], None]
"""Gets what there is in place of messages, and whether it is damage."""


def dump_messages(
    path: str | os.PathLike[str], within: LogRange, note: Note, decoder: MessageDecoder | None = None
) -> Iterator[bytes]:
    """The messages in the range, in the order of offsets, one partition after the other.

    Raises NoSuchThing and UsageError for the path, StorageError, and what the decoder's schemas raise (ZooKeeper may be
    lost); never for what is in the files.
    """
    opened = lru_cache(maxsize=1)(open_to_read)  # a segment that retention removes meanwhile is read to its end
    for folder, segments in find_folders(path):
        name = parse_folder_name(Path(folder).name)
        topic, partition = (Path(folder).name, None) if name is None else name
        started = within.from_ms is None
        for event in within.survey(folder, segments):
            if not isinstance(event, Batch):
                what = f"{event.address} to {event.end}: {event.state}, {event.reason}"
                note(f"{event.file}: {what}", event.state in FAULTS)
                continue
            if event.header.is_control:
                note(f"{event.file}: {event.address} is a control batch, without messages", False)
                continue
            for record in _records(event, opened, note):
                if within.to_offset is not None and record.offset >= within.to_offset:
                    break
                if within.to_ms is not None and record.timestamp_ms >= within.to_ms:
                    break
                if within.from_offset is not None and record.offset < within.from_offset:
                    continue
                started = started or within.from_ms is None or record.timestamp_ms >= within.from_ms
                if started:
                    yield _line(topic, partition, record, decoder).encode("utf-8", "backslashreplace") + b"\n"


def _line(topic: str, partition: int | None, record: Record, decoder: MessageDecoder | None) -> str:
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    content = Content(record.key, record.value, list(record.headers), timestamp_ms)
    line = to_line(topic, partition, record.offset, content)
    if decoder is None:
        return line
    return json.dumps({**json.loads(line), **decoder.decoded(record)}, ensure_ascii=False, separators=(",", ":"))


def _records(batch: Batch, opened: Callable[[str], LogFile], note: Note) -> Iterator[Record]:
    """Those before damage, which is noted."""
    try:
        base = base_address_of(Path(batch.file).name) or 0
        data = opened(batch.file).read_at(batch.address - base, batch.header.size_bytes)
        if len(data) < batch.header.size_bytes:
            raise CorruptBatch("its bytes are no longer in the file")
        yield from each_record(data)
    except KlogError as error:
        what = f"the batch at {batch.address}, of {counted(batch.header.count, 'message')}, cannot be read further"
        note(f"{batch.file}: {what}: {error.message}", True)
