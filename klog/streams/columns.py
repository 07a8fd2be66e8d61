"""The columns that a topic has in a query of `klog sql`, for completion; nothing of Spark is asked."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from klog.schemas.remote import RemoteRegistry
from klog.streams.streams import MESSAGE, Form

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.streams.program import Input

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Of each topic, but for ``value`` where it has a form."""


async def columns_of(cluster: Cluster, asked: Input) -> list[str]:
    """Fields of the value first. Those of Avro are the fields of the newest schema, or of the one that is asked for."""
    fields = await _fields(cluster, asked.topic, asked.form)
    if fields is None:
        return list(COLUMNS)
    return [*(fields or ["value"]), *(f"message_{name}" if name in fields else name for name in MESSAGE)]


async def _fields(cluster: Cluster, topic: str, form: Form) -> list[str] | None:
    """None where the value stays as it is; none where it has no fields."""
    if form.json is not None:
        return fields_of(form.json)
    if form.avro is False:
        return None
    from klog.schemas.decoding.arrow import parse_record

    registry = RemoteRegistry(cluster, asyncio.get_running_loop())
    schema_id = form.avro
    if schema_id is True:
        subjects = await asyncio.to_thread(registry.subjects, [f"{topic}-value"])
        schema_id = subjects[0].live[-1].schema_id
    schemas = await asyncio.to_thread(registry.schemas, [schema_id])
    record = parse_record(schemas[schema_id].text)
    return [] if record is None else [one.name for one in record.fields]


def fields_of(columns: str) -> list[str]:
    """The names in ``country string, user struct<id: bigint, name: string>``: those outside of brackets."""
    depth, parts = 0, [""]
    for character in columns:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    found = [re.match(r"\s*(?:`([^`]+)`|([^\s:`]+))", part) for part in parts]
    return [one[1] or one[2] for one in found if one is not None]
