"""The operations a client may perform on a topic, a group and the cluster (KIP-430), where permissions are not checked.

The number has the bits of all operations of the resource, as from a Kafka broker without an authorizer. It is in the
answer only where the request asks for it; otherwise the answer has `NOT_ASKED`.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = range(3, 10)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << one for one in operations)


TOPIC: Final = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP: Final = _bits(_READ, _DELETE, _DESCRIBE)
CLUSTER: Final = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
