"""The classes of each request and response version: kio's for Kafka's, klog's declarations for its own.

The handlers define which versions a broker serves; these are all that klog can read and write.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import kio.index

from klog.errors import UnsupportedVersion
from klog.protocol import interbroker, introduction, klog_apis
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.protocol.schema import REQUESTS, RESPONSES

DECLARED: Final = (interbroker, introduction, klog_apis)
"""Imported for their declarations."""

WRITTEN_BY_HAND = frozenset({ApiKey.REPLICA_FETCH})
"""klog's own requests without a schema, and with a head without tags."""


@cache
def request_schema(key: int, version: int) -> Any:
    """kio's class of a request's body. Raises UnsupportedVersion."""
    return _schema(key, version, REQUESTS, kio.index.load_request_schema)


@cache
def response_schema(key: int, version: int) -> Any:
    """kio's class of a response's body. Raises UnsupportedVersion."""
    return _schema(key, version, RESPONSES, kio.index.load_response_schema)


def _schema(key: int, version: int, ours: dict[int, Any], load: Any) -> Any:
    if key >= OWN_KEYS_FROM:
        if key in ours and version == 0:
            return ours[key]
        raise UnsupportedVersion(f"request key {key} version {version} is not one of klog's own")
    try:
        return load(key, version)
    except kio.index.KioIndexError:
        raise UnsupportedVersion(f"request key {key} version {version} is unknown") from None


@cache
def is_flexible(key: int, version: int) -> bool:
    """Whether this version's strings and arrays are compact and its headers carry tags (KIP-482)."""
    return key not in WRITTEN_BY_HAND and bool(request_schema(key, version).__flexible__)
