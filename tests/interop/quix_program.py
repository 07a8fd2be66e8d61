"""A Quix Streams program: it counts the messages of TOPIC by key into TOPIC-table; SIGTERM ends it.

Arguments: BOOTSTRAP TOPIC STATE_FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

bootstrap, topic, state_folder = sys.argv[1:]
application = Application(
    broker_address=bootstrap,
    consumer_group=topic,
    auto_offset_reset="earliest",
    state_dir=Path(state_folder),
    commit_interval=0.2,
)


def count(value: str, state: Any) -> str:
    seen: int = state.get("seen", 0) + 1
    state.set("seen", seen)
    return str(seen)


messages = application.dataframe(application.topic(topic, key_deserializer="str", value_deserializer="str"))
counted = application.topic(f"{topic}-table", key_serializer="str", value_serializer="str")
messages.apply(count, stateful=True).to_topic(counted)
application.run()
