"""What a client may do with a topic, a group and the cluster (KIP-430): all that there is; klog has no access lists.

As a broker of Kafka's without an authorizer says it: a number with the bits of all operations that the resource has.
Only who asks for them is told; for others it is `NOT_ASKED`.
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
