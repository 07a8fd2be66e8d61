"""Messages with a schema's id as typed columns, and beside them the messages that cannot be decoded.

A value (or key) is a schema's id and an Avro datum, framed as in `klog.record.avro_framing`. The id finds the writer's
schema. The plan fixes the reader's schema, so all tasks give the same columns.

    typed         the message's columns without the decoded one, schema_id (int32) and record, the reader's type
    undecodable   all the message's columns, schema_id (null without framing) and error (string): why

The record is one column, a struct where the schema is a record: its fields may be named as the message's columns are,
and a null record (a tombstone, whose schema_id is null) differs from a record of nulls. Where the decoding is
``flat``, for tables, the record's fields are columns of their own in its place (`klog.schemas.decoding.arrow`).

Why a decoder of klog's own: docs/pipeline.md has what others cost, and what they cannot do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.record.avro_framing import MAGIC, MAGIC_WITH_UUID, PREFIX_BYTES
from klog.schemas.decoding.arrow import arrow_type, flat_fields, parse_columns, parse_record
from klog.schemas.decoding.front import Datums, Front, Ints, put_together
from klog.schemas.decoding.json_values import JsonReader
from klog.schemas.decoding.plan import check_defaults, plan
from klog.schemas.decoding.steps import Step

NO_FRAMING: Final = "no framing: byte 0 and a schema's id do not come first"
UUID_FRAMING: Final = "no framing that is known: byte 1 comes first, which a schema's UUID follows, not its id"

Divided = tuple[pa.RecordBatch, pa.RecordBatch | None]
"""The typed rows, and the undecodable ones if there are any; each in the batch's order, together all."""

SchemaOf = Callable[[int], str]
"""The text of a schema by its id, or SchemaNotFound. Any other error ends the task, as no message caused it."""


@dataclass(frozen=True)
class Decoding:
    """Which column is decoded, from what, and by which schema: plain values, which go to tasks as JSON.

    ``column``: value or key. ``reader``: the text of the schema to read as. ``reader_id``: its id, -1 where it is a
    file's. ``keep``: keep the encoded bytes beside the record. ``flat``: the record's fields are columns. ``grows``:
    the reader becomes one that also takes what later schemas write. ``form``: avro,
    or json or protobuf (`klog.schemas.decoding.row_decoder`), the latter by ``descriptor``.
    """

    column: str
    reader: str
    reader_id: int = -1
    keep: bool = False
    flat: bool = False
    grows: bool = False
    form: str = "avro"
    descriptor: str = ""

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> Decoding:
        return cls(**known)

    def as_json(self) -> dict[str, Any]:
        """Without what an older klog does not know, where it makes no difference."""
        known = {"flat": False, "grows": False, "form": "avro", "descriptor": ""}
        return {name: value for name, value in asdict(self).items() if known.get(name) != value}

    def typed_schema(self, columns: pa.Schema) -> pa.Schema:
        """Of the typed rows of messages with these columns. InvalidSchema where the reader's schema has no columns."""
        reader = parse_columns(self.reader)
        if self.form == "json":
            JsonReader(reader)
        elif self.form == "avro":
            check_defaults(reader)
        return self.with_record(columns, arrow_type(reader))

    def with_record(self, columns: pa.Schema, record: pa.DataType) -> pa.Schema:
        """Of typed rows whose record is of this type."""
        kept = [field for field in columns if self.keep or field.name != self.column]
        fields = flat_fields(record, self.column) if self._is_flat else [pa.field("record", record)]
        return pa.schema([*kept, ("schema_id", pa.int32()), *fields])

    @cached_property
    def _is_flat(self) -> bool:
        """Whether there are fields to be columns."""
        return self.flat and parse_record(self.reader) is not None

    def divided(
        self,
        batch: pa.RecordBatch,
        ids: pa.Array,
        record: pa.Array,
        failed: NDArray[np.bool_],
        reasons: Callable[[NDArray[np.int64]], pa.Array],
    ) -> Divided:
        """A batch's typed rows and its undecodable ones, by what was found of each row."""
        typed_schema = self.with_record(batch.schema, record.type)
        kept = [batch.column(name) for name in typed_schema.names[: typed_schema.get_field_index("schema_id")]]
        fields = record.flatten() if self._is_flat else [record]
        rows = pa.RecordBatch.from_arrays([*kept, ids, *fields], schema=typed_schema)
        if not failed.any():
            return rows, None
        bad = np.flatnonzero(failed)
        undecodable = pa.RecordBatch.from_arrays(
            [column.take(pa.array(bad)) for column in [*batch.columns, ids]] + [reasons(bad)],
            schema=pa.schema([*batch.schema, ("schema_id", pa.int32()), ("error", pa.string())]),
        )
        return rows.filter(pa.array(~failed)), undecodable


class Decoder:
    """Applies a Decoding to batches. Keeps the steps of each writer's schema; used by one thread."""

    def __init__(self, decoding: Decoding, schema_of: SchemaOf) -> None:
        self.decoding = decoding
        self._schema_of = schema_of
        self._reader = parse_columns(decoding.reader)
        self._type = arrow_type(self._reader)
        self._steps: dict[int, Step | str] = {}
        self.met: set[int] = set()
        """The ids of all schemas found in messages, also of those that cannot be read as the reader's."""
        self.left_out: dict[int, list[str]] = {}
        """By the id of each schema found in messages: the paths of its fields without a column."""

    def split(self, batch: pa.RecordBatch) -> Divided:
        """The typed rows and the undecodable ones."""
        if not len(batch):
            schema = self.decoding.with_record(batch.schema, self._type)
            return pa.RecordBatch.from_pylist([], schema=schema), None
        frames = _Frames.of(batch.column(self.decoding.column))
        datums = Datums(frames.data, len(batch))
        without = frames.present & ~frames.framed
        datums.give_up(np.flatnonzero(without & (frames.magics == MAGIC_WITH_UUID)), UUID_FRAMING)
        datums.give_up(np.flatnonzero(without), NO_FRAMING)
        record = self._records(datums, frames)
        ids = pa.array(frames.ids, mask=~frames.framed)
        return self.decoding.divided(batch, ids, record, datums.failed, datums.reasons)

    def _records(self, datums: Datums, frames: _Frames) -> pa.Array:
        """The value of each row, null where the message has none. Gives up rows that cannot be decoded."""
        rows = len(frames.ids)
        parts: list[pa.Array] = []
        index = np.zeros(rows, np.int64)
        nulls = np.ones(rows, np.bool_)
        base = 0
        for schema_id, where in frames.by_schema():
            step = self._step(schema_id)
            if isinstance(step, str):
                datums.give_up(where, step)
                continue
            front = Front(datums, where, frames.starts[where], frames.ends[where])
            found = step.read(front)
            front.finish()
            if len(where) == rows:
                return found
            parts.append(found)
            index[where] = np.arange(base, base + len(where))
            nulls[where] = False
            base += len(where)
        return put_together(parts, index, nulls if nulls.any() else None) if parts else pa.nulls(rows, self._type)

    def _step(self, schema_id: int) -> Step | str:
        """The step that reads datums of this schema, or why none can."""
        if (known := self._steps.get(schema_id)) is not None:
            return known
        found: Step | str
        try:
            writer = parse_columns(self._schema_of(schema_id))
            self.met.add(schema_id)
            paths: dict[str, None] = {}
            found = plan(writer, self._reader, left_out=paths)
            if paths:
                self.left_out[schema_id] = list(paths)
        except SchemaNotFound:
            found = f"the registry has no schema with the id {schema_id}"
        except InvalidSchema as error:
            found = f"the schema {schema_id} cannot be used: {error}"
        if len(self._steps) >= STEPS_MAX:
            self._steps.clear()
            self.left_out.clear()
        self._steps[schema_id] = found
        return found


STEPS_MAX: Final = 10_000
"""Garbage names random ids, and those are remembered too; this bounds them."""


@dataclass
class _Frames:
    """Of each row: whether it has a value and a frame, its schema's id, where its datum lies in ``data``."""

    data: NDArray[np.uint8]
    present: NDArray[np.bool_]
    framed: NDArray[np.bool_]
    ids: NDArray[np.int32]
    magics: NDArray[np.uint8]
    """The first bytes, of those that are long enough for a frame."""
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, values: pa.Array) -> _Frames:
        _, bounds_buffer, data_buffer = values.buffers()
        bounds = np.frombuffer(bounds_buffer, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
        first = int(bounds[0])
        data = np.frombuffer(data_buffer or b"", np.uint8)[first : int(bounds[-1])]
        bounds -= first
        starts, ends = bounds[:-1], bounds[1:]
        present = np.ones(len(values), np.bool_)
        if values.null_count:
            present = values.is_valid().to_numpy(zero_copy_only=False)
        framed = present & (ends - starts >= PREFIX_BYTES)
        heads = np.zeros((len(values), PREFIX_BYTES), np.uint8)
        if len(data):
            heads = data.take(starts[:, None] + np.arange(PREFIX_BYTES), mode="clip")
        magics = np.where(ends - starts >= PREFIX_BYTES, heads[:, 0], MAGIC)
        framed &= heads[:, 0] == MAGIC
        ids = np.ascontiguousarray(heads[:, 1:]).view(">i4")[:, 0].astype(np.int32)
        ids = np.where(framed, ids, 0).astype(np.int32)
        return cls(data, present, framed, ids, magics, starts + PREFIX_BYTES, ends)

    def by_schema(self) -> list[tuple[int, Ints]]:
        """The rows of each schema."""
        rows = np.flatnonzero(self.framed)
        if not rows.size:
            return []
        ids = self.ids[rows]
        if (ids == ids[0]).all():
            return [(int(ids[0]), rows)]
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        return [(int(self.ids[part[0]]), part) for part in np.split(rows[order], cuts)]
