"""Messages whose values (or keys) are JSON or Protocol Buffers as typed columns: the rows of
`klog.schemas.decoding.decoder`, each message read by itself.

The reader's schema is Avro's: one that is given, or inferred from a sample of JSON (`klog.schemas.inference`), or made
of a descriptor of Protocol Buffers. A message may have the framing of serializers that have a registry, byte 0 and a
schema's id, in front, with which neither of the two can begin: the id is then the row's ``schema_id``, and that schema
is not asked for.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from klog.record.avro_framing import unframed
from klog.schemas.decoding.arrow import arrow_type, parse_columns
from klog.schemas.decoding.decoder import Decoding, Divided
from klog.schemas.decoding.json_values import JsonReader, Unfit

NO_SCHEMA: Final = -1
"""Stands for a schema's id in `RowDecoder.left_out`."""


class RowReader(Protocol):
    """Reads one message at a time. Used by one thread."""

    left_out: dict[str, None]
    """The paths of fields that messages have and the schema has not."""

    def read(self, data: bytes) -> Any:
        """What pyarrow takes for the type of `klog.schemas.decoding.arrow`. Raises Unfit."""
        ...

    def behind_id(self, data: bytes) -> bytes:
        """The message in what follows a schema's id. Raises Unfit."""
        ...


class RowDecoder:
    """Applies a Decoding of JSON or Protocol Buffers to batches. Used by one thread."""

    def __init__(self, decoding: Decoding) -> None:
        """HostError where a library is missing."""
        self.decoding = decoding
        node = parse_columns(decoding.reader)
        self._type = arrow_type(node)
        self._reader: RowReader
        if decoding.form == "json":
            self._reader = JsonReader(node)
        else:
            from klog.schemas.decoding.protobuf_values import ProtobufReader

            self._reader = ProtobufReader(decoding.descriptor)
        self.met: set[int] = set()
        """The ids of schemas to which columns are added: none."""

    @property
    def left_out(self) -> dict[int, list[str]]:
        """The paths of fields without a column."""
        return {NO_SCHEMA: sorted(self._reader.left_out)} if self._reader.left_out else {}

    def split(self, batch: pa.RecordBatch) -> Divided:
        """The typed rows and the undecodable ones."""
        records: list[Any] = []
        ids: list[int | None] = []
        reasons: dict[int, str] = {}
        for row, data in enumerate(batch.column(self.decoding.column).to_pylist()):
            schema_id, record = None, None
            if data is not None:
                schema_id, rest = unframed(data)
                try:
                    record = self._reader.read(rest if schema_id is None else self._reader.behind_id(rest))
                except Unfit as unfit:
                    reasons[row] = str(unfit)
            records.append(record)
            ids.append(schema_id)
        failed = np.zeros(len(records), np.bool_)
        failed[list(reasons)] = True
        return self.decoding.divided(
            batch,
            pa.array(ids, pa.int32()),
            pa.array(records, self._type),
            failed,
            lambda bad: pa.array([reasons[row] for row in bad.tolist()], pa.string()),
        )
