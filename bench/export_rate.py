"""How fast an export's write step is once Spark runs: messages from the broker into Parquet files.

    python -m bench.export_rate BOOTSTRAP TOPIC ROOT

exports one message (which starts Spark), then the whole topic into another root in the same session, and prints as
JSON how many seconds the second one's write step took, and the first one's, which is mostly Spark's start.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from klog.spark.export import run_export

FROM, TO = "staged", "written"
"""The steps of an export between which Spark reads and writes."""


def write_step_s(bootstrap: str, topic: str, root: str, **options: Any) -> float:
    """With options of `run_export`."""
    at: dict[str, float] = {}

    def on_step(step: str) -> None:
        at[step] = time.perf_counter()

    run_export(bootstrap, [topic], root, on_step=on_step, **options)
    return at[TO] - at[FROM]


def main(bootstrap: str, topic: str, root: str) -> None:
    first_s = write_step_s(bootstrap, topic, f"{root}-first", max_messages=1)
    print(json.dumps({"spark_seconds": first_s, "write_seconds": write_step_s(bootstrap, topic, root)}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
