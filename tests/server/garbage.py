"""A broker that counts what its reference counts did not free: ``python -m tests.server.garbage``, and then a broker's
own command line.

On SIGUSR1 a full collection runs, and how many objects of which type it found in cycles is put into the file that
``KLOG_GARBAGE`` names. What is found is kept until then and freed after it, so that nothing is missed between.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.broker_fixture import RunningBroker
from tests.until import until

PATIENCE_S = 60.0
FILE = "KLOG_GARBAGE"
CONSTANTS = "KLOG_GROUP_BOUNDS"


def _report(*_: object) -> None:
    gc.collect()
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    path = Path(os.environ[FILE])
    beside = path.with_suffix(".new")
    gc.garbage.clear()
    gc.set_debug(0)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    there = gc.get_objects()
    alive = Counter(type(one).__qualname__ for one in there if type(one).__module__.startswith("klog."))
    tasks = sum(not one.done() for one in there if type(one) is asyncio.Task)
    beside.write_text(json.dumps({"found": found, "alive": alive, "tasks": tasks}))
    beside.rename(path)


def garbage_of(broker: RunningBroker) -> Counter[str]:
    """What a broker that was started by `counting` has left to the collector since it was asked last, by type."""
    return Counter(_ask(broker)["found"])


def alive_in(broker: RunningBroker) -> Counter[str]:
    """How many objects there are of each class of klog's own, by its name; without those put aside at the start."""
    return Counter(_ask(broker)["alive"])


def tasks_in(broker: RunningBroker) -> int:
    """How many go on, without those put aside at the start."""
    return int(_ask(broker)["tasks"])


def _ask(broker: RunningBroker) -> Any:
    path = _file_of(broker)
    path.unlink(missing_ok=True)
    broker.send(signal.SIGUSR1)
    until(path.exists, "the broker says what it has collected", PATIENCE_S)
    return json.loads(path.read_text())


def counting(broker: RunningBroker, **constants: int) -> RunningBroker:
    """Start it so that `garbage_of` can be asked; with other bounds of groups than there are."""
    environment = [f"{FILE}={_file_of(broker)}", f"{CONSTANTS}={json.dumps(constants)}"]
    broker.wrapper = ["env", *environment, sys.executable, "-m", "tests.server.garbage"]
    return broker.start()


def _file_of(broker: RunningBroker) -> Path:
    return broker.folder / "garbage.json"


if __name__ == "__main__":
    from klog.__main__ import main
    from klog.groups import bounds
    from klog.host import collector
    from klog.server.groups import expiry

    sys.argv = ["klog", *sys.argv[sys.argv.index("klog") + 1 :]]
    collector.EVERY_S = 0.1
    for name, value in json.loads(os.environ[CONSTANTS]).items():
        setattr(expiry if hasattr(expiry, name) else bounds, name, value)
    gc.set_debug(gc.DEBUG_SAVEALL)
    signal.signal(signal.SIGUSR1, _report)
    sys.exit(main())
