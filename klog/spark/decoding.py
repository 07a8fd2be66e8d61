"""The schema of an export's decoded messages. The plan of the first run chooses it, from a flag and the registry, or
for JSON from a sample of the messages.

The schema to read as is fixed for an export, so that all its files have the same columns; messages of newer schemas are
read as that one. Where a subject has moved on, an export to another root has the new columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klog.client.raw_fetch import Range, RawCluster
from klog.config.properties import read_text
from klog.errors import NoSuchThing, Refused, UsageError
from klog.names import TopicPartition
from klog.protocol.schema_errors import SubjectNotFound
from klog.record.avro_framing import unframed

if TYPE_CHECKING:
    from klog.schemas.decoding.decoder import Decoder, SchemaOf
    from klog.schemas.decoding.row_decoder import RowDecoder

AVRO: Final = "avro"
JSON: Final = "json"
PROTOBUF: Final = "protobuf"
FORMS: Final = (AVRO, JSON, PROTOBUF)
COLUMNS: Final = ("value", "key")
SAMPLE_BYTES: Final = 8 << 20
"""Of a topic, to infer a schema from."""


class Decode(NamedTuple):
    """What is asked to be decoded.

    ``asked``: ``avro``, ``avro:value`` or ``avro:key``; ``json`` and ``protobuf`` likewise. ``reader`` is the id of the
    schema to read as, or a file with its text; if None, the newest of the subject ``<topic>-value`` (or -key), which
    must be the same for all topics; for JSON one that a sample of the messages fits. For Protocol Buffers it is
    ``FILE`` or ``FILE#MESSAGE``: a set of descriptors. ``keep``: the bytes stay beside what they mean.
    """

    asked: str
    reader: str | None = None
    keep: bool = False

    def plan(
        self, cluster: RawCluster, topics: Sequence[str], known: dict[str, Any] | None = None, flat: bool = False
    ) -> dict[str, Any]:
        """A Decoding as JSON. ``known`` is what the export was begun with: it stays, unless something else is asked for
        by name. ``flat``: for a table, whose columns are the record's fields. Columns of Avro grow with later schemas
        unless ``reader`` says what they are.

        UsageError for another text; SchemaNotFound, SubjectNotFound, InvalidSchema; Refused where topics differ, or no
        message shows a schema.
        """
        form, column = _asked(self.asked)
        reader, keep = self.reader, self.keep
        if known is not None and (known["column"], known.get("form", AVRO)) == (column, form):
            keep = keep or known["keep"]
            if reader is None and keep == known["keep"]:
                return known
        schema_id, descriptor = -1, ""
        if form == PROTOBUF:
            text, descriptor = _described(reader)
        elif reader is None and form == JSON:
            text = _inferred(cluster, topics, column)
        elif reader is None or reader.isdecimal():
            schema_id = _newest(cluster, topics, column) if reader is None else int(reader)
            text = cluster.schema(schema_id)
        else:
            text = _file(reader)
        from klog.export.message_columns import SCHEMA  # pyarrow: a run with nothing to export has no time for it
        from klog.schemas.decoding.decoder import Decoding

        grows = reader is None and form == AVRO
        decoding = Decoding(column, text, schema_id, keep, flat, grows, form, descriptor)
        decoding.typed_schema(SCHEMA)  # said now, and not by a task
        return decoding.as_json()


def _asked(text: str) -> tuple[str, str]:
    """The form and the column."""
    form, _, column = text.partition(":")
    if form not in FORMS or (column or "value") not in COLUMNS:
        raise UsageError(f"--decode {text}: expected avro, json or protobuf, for keys avro:key and so on")
    return form, column or "value"


def _newest(cluster: RawCluster, topics: Sequence[str], column: str) -> int:
    subjects = [f"{topic}-{column}" for topic in topics]
    if not subjects:
        raise UsageError("topics are needed to know what to decode as", hint="name them, or give --read-as")
    try:
        ids = {subject: cluster.newest_schema_id(subject) for subject in subjects}
    except SubjectNotFound as error:
        error.hint = "register the schema, or give --read-as: an id, or a file"
        raise
    if len(set(ids.values())) > 1:
        listed = ", ".join(f"{subject} {schema_id}" for subject, schema_id in ids.items())
        raise Refused(
            f"the topics' schemas differ: {listed}",
            hint="export each to a root of its own, or give --read-as: what all can be read as",
        )
    return ids[subjects[0]]


def _inferred(cluster: RawCluster, topics: Sequence[str], column: str) -> str:
    """Refused where no message is JSON."""
    from klog.schemas.inference import infer

    found = infer(value for topic in topics for value in sample(cluster, topic, column))
    if found is None:
        raise Refused(
            f"no {column} of JSON was found in {', '.join(topics)}, so no schema can be inferred",
            hint="give --read-as: a file with an Avro schema, or its id",
        )
    return found


def sample(cluster: RawCluster, topic: str, column: str) -> Iterator[bytes]:
    """Values of a topic, without nulls and framing: the oldest and newest of each partition, `SAMPLE_BYTES` at most."""
    from klog.spark.columns import decode

    partitions = [TopicPartition(topic, one) for one in cluster.describe([topic])[topic].partitions]
    starts, ends = cluster.bounds(partitions)
    share = SAMPLE_BYTES // max(2 * len(partitions), 1)
    for one in partitions:
        start, end = starts[one], ends[one]
        for low in sorted({start, max(start, end - share)}):
            taken = 0
            for records in cluster.fetch(Range(topic, one.partition, low, end), max_bytes=share):
                for batch in decode(records, Range(topic, one.partition, low, end), (column,)):
                    for value in batch.column(column).to_pylist():
                        if value is not None and taken < share:
                            taken += len(value)
                            yield unframed(value)[1]
                break


def _described(reader: str | None) -> tuple[str, str]:
    """The schema's text and the descriptor of a message type of Protocol Buffers."""
    if reader is None:
        raise UsageError(
            "--decode protobuf needs --read-as: FILE or FILE#MESSAGE",
            hint="protoc --include_imports --descriptor_set_out=FILE page.proto",
        )
    from klog.schemas.decoding.protobuf_values import described

    path, _, name = reader.partition("#")
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise NoSuchThing(f"{path} is not a file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return described(data, name or None)


def _file(path: str) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        raise NoSuchThing(f"{path} is neither the id of a schema nor a file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a schema: {error}") from None


# --- In tasks ---


def decoder_of(decode: dict[str, Any], bootstrap: str) -> Decoder | RowDecoder:
    """What applies a decoding, by the registry of a cluster."""
    from klog.schemas.decoding.decoder import Decoder, Decoding
    from klog.schemas.decoding.row_decoder import RowDecoder

    decoding = Decoding.from_json(decode)
    return Decoder(decoding, schemas_at(bootstrap)) if decoding.form == AVRO else RowDecoder(decoding)


_texts: dict[tuple[str, int], str] = {}


def schemas_at(bootstrap: str) -> SchemaOf:
    """Texts by ids, each asked for once a process: a connection is made when one is not known yet.

    The connection stays until what is returned is let go.
    """
    cluster: list[RawCluster] = []

    def schema_of(schema_id: int) -> str:
        known = _texts.get((bootstrap, schema_id))
        if known is None:
            if not cluster:
                cluster.append(RawCluster(bootstrap))
            known = cluster[0].schema(schema_id)
            _texts[bootstrap, schema_id] = known
        return known

    return schema_of
