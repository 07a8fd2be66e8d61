"""Committed offsets in files, one line an offset.

    zk      ``/consumers/<group>/offsets/<topic>/<partition>:<offset>``, as 0.8's ExportZkOffsets writes and its
            ImportZkOffsets reads; also with 0.8.2's ``<broker>-<partition>`` for the partition. The bare number
    csv     ``group,topic,partition,offset``, no header: what Kafka's kafka-consumer-groups exports and takes
    json    klog's envelope, one row per offset, with metadata and leader epoch; or those rows alone, one a line

The first character of a file shows its format. An invalid line is a `BadLine`, never an exception: the caller decides
what to do. An offset of null, -1 or -2 means that nothing is committed, as clients write it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from klog.config.properties import read_text
from klog.coordination import paths
from klog.coordination.committed import CommittedOffset
from klog.errors import KlogError
from klog.names import TopicPartition, check_topic_name

Form = Literal["zk", "json", "csv"]

ENVELOPE_VERSION = 1
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
METADATA_CHARS_MAX = 4096
"""What a broker takes by default (``offset.metadata.max.bytes``)."""


class OffsetLine(NamedTuple):
    """One offset of a file; ``committed`` None: nothing is committed. ``number`` counts lines from 1."""

    number: int
    group: str
    name: TopicPartition
    committed: CommittedOffset | None


class BadLine(NamedTuple):
    """A line that means nothing, or nothing that could be; shown as ``line 7: reason``."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


def text_of(group: str, offsets: Mapping[TopicPartition, CommittedOffset | None], form: Form) -> str:
    """A group's offsets as a file; `parse` gives the same back. The json form alone keeps None, and metadata."""
    known = {name: committed for name, committed in sorted(offsets.items()) if committed is not None}
    match form:
        case "zk":
            return "".join(f"{paths.consumer_offset(group, *name)}:{one.offset}\n" for name, one in known.items())
        case "csv":
            out = io.StringIO()
            rows = csv.writer(out, lineterminator="\n")
            rows.writerows((group, name.topic, name.partition, one.offset) for name, one in known.items())
            return out.getvalue()
        case "json":
            return _json_text([_row(group, name, committed) for name, committed in sorted(offsets.items())])


def _row(group: str, name: TopicPartition, committed: CommittedOffset | None) -> dict[str, Any]:
    if committed is None:
        return {"group": group, "topic": name.topic, "partition": name.partition, "offset": None}
    return {
        "group": group,
        "topic": name.topic,
        "partition": name.partition,
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch if committed.leader_epoch >= 0 else None,
        "metadata": committed.metadata,
    }


def _json_text(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ",".join("\n  " + json.dumps(row, ensure_ascii=False) for row in rows)
    head = f'{{"_command": "offset.export", "_version": {ENVELOPE_VERSION}, "rows": ['
    return head + lines + ("\n]}\n" if rows else "]}\n")


# --- Reading ----------------------------------------------------------------------------------------------------------


def read(path: Path, group: str | None = None) -> tuple[list[OffsetLine], list[BadLine]]:
    """`parse` of a file; bytes that are not UTF-8 make bad lines."""
    return parse(read_text(path, "replace"), group)


_ENDS_AS_CSV = re.compile(r".*,.*,[ \t]*-?[0-9]+[ \t]*\r?$", re.MULTILINE)
"""A first line of a CSV file without a header: neither JSON nor a ZooKeeper path ends in a comma and a number."""


def parse(text: str, group: str | None = None) -> tuple[list[OffsetLine], list[BadLine]]:
    """The offsets of a file of any of the forms, and its invalid lines.

    ``group`` takes the place of every group the file names, and is needed where it names none (``topic,partition,
    offset``, Kafka's short form).
    """
    begin = text.lstrip()
    # A group's name may look like the beginning of another form.
    first = "" if _ENDS_AS_CSV.match(begin) else begin[:1]
    if first in ("{", "["):
        lines = _json_lines(text)
    elif first == "/":
        lines = _zk_lines(text)
    else:
        lines = _csv_lines(text)
    good: list[OffsetLine] = []
    bad: list[BadLine] = []
    seen: dict[tuple[str, TopicPartition], int] = {}
    for number, found in lines:
        try:
            if isinstance(found, str):
                raise _BadValue(found)
            line = _checked(number, found, group)
            before = seen.setdefault((line.group, line.name), number)
            if before != number:
                raise _BadValue(f"{line.name} of group {line.group!r} is already in line {before}")
        except _BadValue as error:
            bad.append(BadLine(number, str(error)))
        else:
            good.append(line)
    return good, bad


class _BadValue(ValueError):
    """Why a line is invalid."""


_Fields = Mapping[str, Any]


def _checked(number: int, fields: _Fields, group: str | None) -> OffsetLine:
    named = group if group is not None else fields.get("group")
    if not isinstance(named, str) or not named:
        raise _BadValue("no group is named")
    try:
        topic = check_topic_name(str(fields.get("topic", "")))
    except KlogError as error:
        raise _BadValue(error.message) from None
    partition = _number(fields.get("partition"), "partition", PARTITION_MAX)
    name = TopicPartition(topic, partition)
    if "offset" in fields and fields["offset"] in _NOTHING:
        return OffsetLine(number, named, name, None)
    offset = _number(fields.get("offset"), "offset", OFFSET_MAX)
    epoch, metadata = fields.get("leader_epoch"), fields.get("metadata") or ""
    if not isinstance(metadata, str) or len(metadata) > METADATA_CHARS_MAX:
        raise _BadValue(f"metadata of {name} must be a text of at most {METADATA_CHARS_MAX} characters")
    leader_epoch = -1 if epoch in (None, -1) else _number(epoch, "leader_epoch", PARTITION_MAX)
    return OffsetLine(number, named, name, CommittedOffset(offset, leader_epoch, metadata))


_NOTHING = (None, -1, -2, "-1", "-2")
"""Offsets that stand for nothing committed: null, and as clients write it."""


def _number(value: Any, what: str, largest: int) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
        raise _BadValue(f"{what} {value!r} is not a number from 0 to {largest}")
    return value


_ZK_LINE = re.compile(
    r"/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?:\d+-)?(?P<partition>[^/:]+):(?P<offset>.*)"
)


def _zk_lines(text: str) -> Iterator[tuple[int, _Fields | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found = _ZK_LINE.fullmatch(line.strip())
        if found is None:
            yield number, f"{_shown(line)} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
        else:
            yield number, {**found.groupdict(), "group": paths.group_name(found["group"])}


def _csv_lines(text: str) -> Iterator[tuple[int, _Fields | str]]:
    rows = csv.reader(io.StringIO(text), strict=True)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield rows.line_num, f"no CSV: {error}"
            continue
        if row is None:
            return
        number = rows.line_num
        cells = [one.strip() for one in row]
        if not any(cells) or cells[-1].lower() == "offset":
            continue  # an empty line, or a header
        if len(cells) == 4:
            yield number, dict(zip(("group", "topic", "partition", "offset"), cells, strict=True))
        elif len(cells) == 3:
            yield number, dict(zip(("topic", "partition", "offset"), cells, strict=True))
        else:
            yield number, f"{_shown(','.join(row))} is not GROUP,TOPIC,PARTITION,OFFSET"


_ROWS = re.compile(r'"rows"\s*:\s*\[')


def _json_lines(text: str) -> Iterator[tuple[int, _Fields | str]]:
    """The objects of the array ``rows``, of a bare array, or one after another, each by the line it begins in.

    Read one by one, so that an error has its line; what follows the first that is not JSON is unknown.
    """
    opening = _ROWS.search(text)
    at = opening.end() if opening else text.index("[") + 1 if text.lstrip().startswith("[") else 0
    decoder = json.JSONDecoder()
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at >= len(text) or text[at] == "]":
            if at >= len(text) and (opening or text.lstrip().startswith("[")):
                yield text.count("\n") + 1, "the file ends in the middle of its rows"
            return
        number = text.count("\n", 0, at) + 1
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            yield line, f"no JSON: {getattr(error, 'msg', error)}"
            return
        yield number, value if isinstance(value, dict) else f"{_shown(json.dumps(value))} is not an object"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "...")
