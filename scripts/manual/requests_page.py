"""docs/internals/requests.md, from the declarations of klog's own requests."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from klog.protocol import replica_fetch
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.entity_fields import fields_of
from klog.protocol.schema import REQUESTS
from klog.protocol.versions import WRITTEN_BY_HAND, request_schema, response_schema

PATH: Final = "docs/internals/requests.md"

_HEAD: Final = """\
# klog's own requests

What Kafka's protocol has no words for. Keys start at 10000. Every request is version 0, has Kafka's head, and is
flexible (KIP-482: compact lengths, tags), except ReplicaFetch. ApiVersions lists them only to a client whose
software name is `klog` (KIP-511). `scripts/build_man` generates this page from what `klog.protocol.schema` declares.

Requests between brokers need a connection that has shown the cluster's secret (rule R10): Greet, then Prove.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for key in sorted({*REQUESTS, *WRITTEN_BY_HAND}):
        parts.append(f"## {key} {api_name(key)}\n")
        if key == ApiKey.REPLICA_FETCH:
            parts.append("Described in `klog/protocol/replica_fetch.py`:\n")
            parts.append(f"```\n{inspect.getdoc(replica_fetch)}\n```\n")
            continue
        for name, declared in (("Request", request_schema(key, 0)), ("Response", response_schema(key, 0))):
            lines = list(_lines(declared, 0))
            parts.append(f"{name}:\n\n```\n" + "\n".join(lines or ["(no fields)"]) + "\n```\n")
            parts += [f"{about}\n" for about in _about(declared)]
    return "\n".join(parts)


def _lines(declared: Any, depth: int) -> Iterator[str]:
    for one in fields_of(declared):
        words = "structures" if one.is_structure else (one.kind or "").replace("error_code", "int16, an error code")
        array, nullable = "array of " * one.is_array, ", nullable" * one.is_nullable
        yield f"{'  ' * depth}{one.name:<{24 - 2 * depth}}{array}{words}{nullable}"
        if one.is_structure:
            yield from _lines(one.element, depth + 1)


def _about(declared: Any) -> Iterator[str]:
    """What the classes say of themselves, the outermost first."""
    doc = declared.__doc__ or ""
    if not doc.startswith(f"{declared.__name__}("):  # what dataclasses make up
        yield inspect.cleandoc(doc).replace("``", "`")
    for one in fields_of(declared):
        if one.is_structure:
            yield from _about(one.element)
