"""Fixtures that all rooms share: a real ZooKeeper, real brokers; and the seed of a run, printed when it fails."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.broker_fixture import broker, make_broker, topic
from tests.zookeeper_fixture import zk_chroot, zookeeper

__all__ = ["broker", "make_broker", "topic", "zk_chroot", "zookeeper"]

# Whoever runs the tests in the background, or by nohup, has these ignored, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in every run: what CI says is due to the change, not to the draw. The machine may be busy: no test
# fails for being slow, and failures print the blob that repeats them.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")
# Hypothesis also draws constants of whatever modules are loaded by then: other tests beside it, other examples.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants
# The search for new examples, by hand, after a change of a format. What it finds becomes an explicit @example:
# `pytest --hypothesis-profile=deep --timeout=0 tests/record`.
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=5_000)


TESTS = Path(__file__).parent
FAST_ROOMS = (
    *("config", "house", "net", "protocol", "record", "replication", "simulation", "storage"),  # no processes
    *("admin", "schemas", "server"),  # one broker, which all tests of a worker share
)
"""The folders of `scripts/test --fast`. Rooms that start Spark, Java clients or several brokers are not among them."""

OWN_PROCESSES = {"make_broker", "make_cluster", "shared_three", "start"}
"""Fixtures that start servers for one test."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the fast tier leaves out."""
    room = collection_path.relative_to(TESTS).parts[:1] if collection_path.is_relative_to(TESTS) else ()
    return True if config.option.markexpr == "fast" and room and room[0] not in FAST_ROOMS else None


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is fast, put slow tests first, and keep the groups of xdist together."""
    for item in items:
        is_slow = any(item.get_closest_marker(name) for name in ("slow", "spark", "timed"))
        own = OWN_PROCESSES.intersection(getattr(item, "fixturenames", ()))
        if item.path.relative_to(TESTS).parts[0] in FAST_ROOMS and not is_slow and not own:
            item.add_marker("fast")
    # A test of a minute that starts last would leave the other worker with nothing to do.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    # xdist 3.8 appends the group to a field of the item that pytest 9.2 does not read.
    if getattr(config.option, "loadgroup", False):
        for item in items:
            group = item.get_closest_marker("xdist_group")
            if group is not None and "@" not in item.nodeid.rpartition("]")[2]:
                item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")  # type: ignore[attr-defined]
