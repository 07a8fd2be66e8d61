"""A child of the bench: some of the paper's consumers in one process.

    python -m bench.stream_members ZOOKEEPER GROUP TOPIC COUNT

Tells `ready`; told `enter`, all of them enter the group at once, and `entered` is told; `leave`: they leave, `left`.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from bench.children import tell, told
from klog.client.consumer import Consumer


def main(zookeeper: str, group: str, topic: str, count: str) -> None:
    consumers = [Consumer(zookeeper, group) for _ in range(int(count))]
    with ThreadPoolExecutor(len(consumers)) as pool:
        tell("ready")
        for order in told():
            if order == ["enter"]:
                list(pool.map(lambda one: one.create_message_streams(topic), consumers))
                tell("entered")
            elif order == ["leave"]:
                list(pool.map(Consumer.shutdown, consumers))
                tell("left")
        list(pool.map(Consumer.shutdown, consumers))


if __name__ == "__main__":
    main(*sys.argv[1:])
