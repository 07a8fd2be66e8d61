"""Values with a schema's id as a column of Spark's, decoded in the tasks (`klog.schemas.decoding`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from klog.client.raw_fetch import RawCluster
from klog.errors import CorruptLog
from klog.spark.decoding import Decode, decoder_of
from klog.spark.tasks import Versions, check_worker

if TYPE_CHECKING:
    import pyarrow as pa


def with_records(
    frame: Any, bootstrap: str, topics: Sequence[str], reader: str | None, bad: str, kept: Sequence[str]
) -> Any:
    """The columns ``kept`` of messages, and ``record``: the value in the reader's schema.

    ``reader`` as in `klog.spark.decoding.Decode`, whose errors this has. ``bad``: as `klog.streams.streams.Form`.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    from klog.schemas.decoding.decoder import Decoding

    with RawCluster(bootstrap) as cluster:
        plan = Decode("avro:value", reader).plan(cluster, topics)
    wanted = frame.select(*kept, "value")
    columns = to_arrow_schema(wanted.schema)
    typed = Decoding.from_json(plan).typed_schema(columns)
    schema = pa.schema([typed.field(name) for name in (*kept, "record")])
    return wanted.mapInArrow(_Decode(bootstrap, plan, bad, Versions.here()), from_arrow_schema(schema))


@dataclass(frozen=True)
class _Decode:
    """In the tasks."""

    bootstrap: str
    plan: dict[str, Any]
    bad: str
    versions: Versions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        check_worker(self.versions)
        decoder = decoder_of(self.plan, self.bootstrap)
        for batch in batches:
            typed, undecodable = decoder.split(batch)
            names = [name for name in typed.schema.names if name != "schema_id"]
            yield typed.select(names)
            if undecodable is None:
                continue
            if self.bad == "fail":
                raise CorruptLog(_said(undecodable), hint='bad="null" reads such values as null')
            rows = undecodable.num_rows
            columns = [
                undecodable.column(name) if name != "record" else pa.nulls(rows, typed.schema.field("record").type)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema([typed.schema.field(name) for name in names]))


def _said(undecodable: pa.RecordBatch) -> str:
    first = undecodable.slice(0, 1).to_pylist()[0]
    where = f"{first['topic']}-{first['partition']} at {first['offset']}" if "topic" in first else "a message"
    return f"{undecodable.num_rows} values cannot be decoded; the first, {where}: {first['error']}"
