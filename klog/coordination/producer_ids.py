"""Producer ids in blocks: ``/latest_producer_id_block``, where Kafka has kept it since idempotence (KIP-98).

``{"version":1,"broker":N,"block_start":"0","block_end":"999"}``. A broker claims the next block by a versioned write of
the node, and gives out its ids from memory. It drops a block whose claim is in doubt: a gap in the ids costs nothing,
while two producers with one id would be taken for one.
"""

from __future__ import annotations

from klog.coordination import entries, paths
from klog.coordination.zookeeper import ZooKeeper, put
from klog.errors import BadVersion, NodeExists, SessionLost, ZooKeeperError

BLOCK = 1000
CLAIM_TRIES = 50
PRODUCER_ID_MAX = 2**63 - 1


def claim_block(zookeeper: ZooKeeper, broker_id: int) -> range:
    """Claim a block of ids that no other broker has had or will get. SessionLost when none could be claimed."""
    path = paths.PRODUCER_IDS
    for _ in range(CLAIM_TRIES):
        node = zookeeper.find(path)
        start = 0 if node is None else entries.JsonNode(path, node.data).integer("block_end") + 1
        block = range(start, start + BLOCK)
        if block.stop - 1 > PRODUCER_ID_MAX:
            raise ZooKeeperError(f"ZooKeeper node {path}: no producer ids are left above {start}")
        data = entries.encode(
            {"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(block.stop - 1)}
        )
        try:
            zookeeper.multi([put(path, data, node)])
        except (BadVersion, NodeExists, SessionLost):
            continue
        return block
    raise SessionLost(f"no block of producer ids could be claimed in {CLAIM_TRIES} tries at {zookeeper.address}")


def skip_below(zookeeper: ZooKeeper, below: int) -> None:
    """Never allocate an id below this one; for rebuilt registries."""
    path = paths.PRODUCER_IDS
    node = zookeeper.find(path)
    if node is not None and entries.JsonNode(path, node.data).integer("block_end") + 1 >= below:
        return
    data = entries.encode({"version": 1, "broker": -1, "block_start": "0", "block_end": str(below - 1)})
    zookeeper.commit([put(path, data, node)])
