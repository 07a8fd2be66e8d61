"""The start and end of partitions, from their leaders; blocking, with a time-out.

librdkafka can answer this too, but it blocks the caller while another thread polls it (confluent-kafka 2.16: for as
long as the poll lasts, whatever the time-out).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from klog.errors import KlogError
from klog.names import TopicPartition


def ask_ends(
    bootstrap: str, wanted: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int | KlogError]:
    """The offset of EARLIEST or LATEST of each partition; an error if the leader does not answer within
    ``timeout_s``."""
    found: dict[TopicPartition, int | KlogError] = {}

    def ask() -> None:
        try:
            found.update(asyncio.run(_ask(bootstrap, wanted, timeout_s)))
        except TimeoutError:
            pass
        except KlogError as error:
            found.update(dict.fromkeys(wanted, error))

    # In another thread: the caller may run an event loop already.
    thread = threading.Thread(target=ask, name="klog-ends", daemon=True)
    thread.start()
    thread.join()
    silent = KlogError(f"the leader did not answer within {timeout_s:g} s")
    return {one: found.get(one, silent) for one in wanted}


async def _ask(
    bootstrap: str, wanted: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int | KlogError]:
    from klog.client import leader_requests
    from klog.client.cluster import Cluster

    connecting = Cluster.connect(bootstrap, source="ZooKeeper", timeout_s=timeout_s)
    async with asyncio.timeout(timeout_s), await connecting as cluster:
        answers = await cluster.to_leaders(wanted, leader_requests.list_offsets)
    return {one: found if isinstance(found, KlogError) else found.offset or 0 for one, found in answers.items()}
