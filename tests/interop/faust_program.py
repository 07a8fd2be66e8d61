"""A Faust program: it counts the messages of TOPIC by key into TOPIC-table; SIGTERM ends it.

Arguments: BOOTSTRAP TOPIC STATE_FOLDER. Its table is in memory: each start restores it from the changelog topic.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import faust  # type: ignore[import-not-found]

PARTITIONS = 2

bootstrap, topic, state_folder = sys.argv[1:]
Path(state_folder).mkdir()
application = faust.App(
    topic,
    broker=f"kafka://{bootstrap}",
    datadir=state_folder,
    topic_partitions=PARTITIONS,
    broker_commit_interval=0.2,
    web_enabled=False,
)
messages = application.topic(topic, key_serializer="raw", value_serializer="raw")
counted = application.topic(f"{topic}-table", key_serializer="raw", value_serializer="raw")
counts = application.Table("counts", default=int, partitions=PARTITIONS)


@application.agent(messages)  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    async for key, _ in stream.items():
        name = key.decode()
        counts[name] += 1
        await counted.send(key=key, value=str(counts[name]).encode())


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--loglevel", "warn"]
    application.main()
