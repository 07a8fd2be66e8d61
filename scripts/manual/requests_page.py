"""docs/internals/requests.md, from the declarations of klog's own requests."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, Final, get_args

from klog.protocol import replica_fetch
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.versions import own_keys, request_schema, response_schema

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
    for key in own_keys():
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
    for one in fields(declared):
        inner, how = _kind(one)
        yield f"{'  ' * depth}{one.name:<{24 - 2 * depth}}{how}"
        if is_dataclass(inner):
            yield from _lines(inner, depth + 1)


def _kind(one: Field[Any]) -> tuple[Any, str]:
    """What a field holds, and that in words."""
    inner, words = one.type, ""
    optional = type(None) in get_args(inner)
    while get_args(inner):
        options = [arm for arm in get_args(inner) if arm not in (type(None), ...)]
        words += "array of " if ... in get_args(inner) else ""
        inner = options[0]
    words += (
        "structures"
        if is_dataclass(inner)
        else one.metadata["kafka_type"].replace("error_code", "int16, an error code")
    )
    return inner, words + (", nullable" if optional else "")


def _about(declared: Any) -> Iterator[str]:
    """What the classes say of themselves, the outermost first."""
    doc = declared.__doc__ or ""
    if not doc.startswith(f"{declared.__name__}("):  # what dataclasses make up
        yield inspect.cleandoc(doc).replace("``", "`")
    for one in fields(declared):
        inner, _ = _kind(one)
        if is_dataclass(inner):
            yield from _about(inner)
