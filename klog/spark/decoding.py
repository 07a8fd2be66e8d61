"""The schema of an export's decoded messages. The plan of the first run chooses it, from a flag and the registry.

The schema to read as is fixed for an export, so that all its files have the same columns; messages of newer schemas are
read as that one. Where a subject has moved on, an export to another root has the new columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klog.client.raw_fetch import RawCluster
from klog.errors import NoSuchThing, Refused, UsageError
from klog.protocol.schema_errors import SubjectNotFound

if TYPE_CHECKING:
    from klog.schemas.decoding.decoder import SchemaOf

COLUMNS: Final = ("value", "key")


def plan_decoding(
    cluster: RawCluster,
    topics: Sequence[str],
    asked: str,
    *,
    reader: str | None = None,
    keep: bool = False,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A Decoding as JSON, by ``asked``: ``avro``, ``avro:value`` or ``avro:key``.

    ``reader`` is the id of the schema to read as, or a file with its text; if None, the newest of the subject
    ``<topic>-value`` (or -key), which must be the same for all topics. ``known`` is what the export was begun with:
    it stays, unless something else is asked for by name. ``keep``: the bytes stay beside what they mean.

    UsageError for another text; SchemaNotFound, SubjectNotFound, InvalidSchema; Refused where topics differ.
    """
    column = _column(asked)
    if known is not None and known["column"] == column:
        keep = keep or known["keep"]
        if reader is None and keep == known["keep"]:
            return known
    schema_id = -1
    if reader is None:
        schema_id = _newest(cluster, topics, column)
    elif reader.isdecimal():
        schema_id = int(reader)
    if schema_id >= 0:
        text = cluster.schema(schema_id)
    else:
        text = _file(str(reader))
    from klog.schemas.decoding.decoder import Decoding
    from klog.spark.columns import SCHEMA  # pyarrow and numpy: a run with nothing to export has no time for them

    decoding = Decoding(column, text, schema_id, keep)
    decoding.typed_schema(SCHEMA)  # said now, and not by a task
    return decoding.as_json()


def _column(asked: str) -> str:
    form, _, column = asked.partition(":")
    if form != "avro" or (column or "value") not in COLUMNS:
        raise UsageError(f"--decode {asked}: there are avro, avro:value and avro:key")
    return column or "value"


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


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoSuchThing(f"{path} is neither the id of a schema nor a file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a schema: {error}") from None


# --- In tasks ---

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
