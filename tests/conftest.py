"""Fixtures that all rooms share: a real ZooKeeper, real brokers; and the seed of a run, printed when it fails."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import signal
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import processes
from tests.broker_fixture import at, broker, dead_address, make_broker, registry, silent_address, topic
from tests.zookeeper_fixture import connect, end_of_run, proxy, through, zk, zk_chroot, zookeeper

__all__ = [
    "at",
    "broker",
    "connect",
    "dead_address",
    "make_broker",
    "proxy",
    "registry",
    "silent_address",
    "through",
    "topic",
    "zk",
    "zk_chroot",
    "zookeeper",
]

# Whoever runs the tests in the background, or by nohup, has these ignored, and so would every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in every run: what CI says is due to the change, not to the draw. The machine may be busy: no test
# fails for being slow, and failures print the blob that repeats them.
settings.register_profile(
    "ci",
    max_examples=20,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")
# Hypothesis also draws constants of whatever modules are loaded by then: other tests beside it, other examples.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants
settings.register_profile("all", settings.get_profile("ci"), max_examples=200)  # of scripts/test --all
# The search for new examples, by hand, after a change of a format. What it finds becomes an explicit @example:
# `pytest --hypothesis-profile=deep --timeout=0 tests/record`.
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=5_000)


TESTS = Path(__file__).parent
FAST_ROOMS = (
    *(
        "config",
        "groups",
        "host",
        "house",
        "net",
        "protocol",
        "record",
        "replication",
        "simulation",
        "storage",
    ),  # no processes
    *("admin", "schemas", "server"),  # one broker, which all tests of a worker share
)
"""The folders of `scripts/test --fast`. Rooms that start Spark, Java clients or several brokers are not among them."""

DURATIONS = TESTS / "durations.json"
"""Seconds of the longest tests in the last `scripts/test --all`, which writes it."""

OWN_PROCESSES = {"make_broker", "make_cluster", "shared_three", "start"}
"""Fixtures that start servers for one test."""


CLOSE_ALL = (
    *("config", "groups", "net", "protocol", "record", "replication", "schemas", "simulation", "storage"),
    *("admin", "client", "coordination", "server", "tools"),
)
"""Rooms whose tests close what they open: a socket, file or process that is left to the collector fails them.

Not in the other rooms. Commands leave servers behind that are to outlive them; Spark, kafka-python and aiokafka leave
sockets to the collector, whose run would then choose the test that fails.
"""


def pytest_collection_finish() -> None:
    """What lives as long as the run, modules and tests, is not looked at by the collector again."""
    collect()


@pytest.hookimpl(tryfirst=True)  # before its folder is removed
def pytest_sessionfinish(session: pytest.Session) -> None:
    end_of_run(session.config)


def collect() -> None:
    """What is not garbage now lives on, mostly as long as the run: the next collection looks at what is new. To look at
    all of it each time was a sixth of the time of the tests' own processes."""
    gc.collect()
    gc.freeze()


class _Garbage:
    """Whether cycles left before this module may be there still."""

    of_others = True


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is left in cycles is found with the module that left it: collected before the module and after it."""
    is_checked = room_of(request.path) in CLOSE_ALL
    if is_checked and _Garbage.of_others:
        with warnings.catch_warnings():  # others' garbage is not this module's fault
            warnings.simplefilter("ignore", ResourceWarning)
            collect()
    _Garbage.of_others = not is_checked
    yield
    if is_checked:
        collect()


def cpu_s() -> float:
    """Of this process, of the children that it has waited for, and of those that its fork server has forked."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + processes.cpu_s()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a test costs, for tests/run_report.py."""
    item.user_properties.append(("cpu_begun", cpu_s()))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "teardown":
        begun = dict(item.user_properties).get("cpu_begun")
        if isinstance(begun, float):
            item.user_properties[:] = [("cpu_s", cpu_s() - begun)]


def room_of(path: Path) -> str | None:
    """The folder below tests/ that a path is in."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return parts[0] if parts else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the fast tier leaves out."""
    room = room_of(collection_path)
    return True if config.option.markexpr == "fast" and room is not None and room not in FAST_ROOMS else None


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is fast, and what closes all it opens; the longest first, and the groups of xdist together."""
    for item in items:
        long = item.get_closest_marker("long")
        if long is not None and not (long.args and long.args[0]):
            raise pytest.UsageError(f"{item.nodeid}: pytest.mark.long needs the reason")
        is_slow = long or any(item.get_closest_marker(name) for name in ("slow", "spark", "timed"))
        if "shared_three" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("three"))  # three brokers for the whole run
        own = OWN_PROCESSES.intersection(getattr(item, "fixturenames", ()))
        if room_of(item.path) in FAST_ROOMS and not is_slow and not own:
            item.add_marker("fast")
    for module in {module for item in items if (module := item.getparent(pytest.Module)) is not None}:
        own_filters = [str(mark.args) for mark in module.iter_markers("filterwarnings")]
        if room_of(module.path) in CLOSE_ALL and not any("ResourceWarning" in one for one in own_filters):
            module.add_marker(pytest.mark.filterwarnings("error::ResourceWarning"))
    _sort(items)
    # xdist 3.8 appends the group to a field of the item that pytest 9.2 does not read.
    if getattr(config.option, "loadgroup", False):
        for item in items:
            group = group_of(item)
            if group is not None and "@" not in item.nodeid.rpartition("]")[2]:
                item._id = NodeId.parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]


def group_of(item: pytest.Item) -> str | None:
    """The group of xdist, whose tests run in one worker."""
    mark = item.get_closest_marker("xdist_group")
    return None if mark is None else str(mark.args[0])


def _sort(items: list[pytest.Item]) -> None:
    """The longest modules first: one that starts last leaves the other workers idle. The same order in all workers.

    The tests of a module, and of a group of xdist, stay together: what they share would else be made again for each.
    A test that no run has timed yet counts for as much as one of its kind.
    """
    known: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    seconds: dict[str, float] = {}
    for item in items:
        guess = 5.0 if item.get_closest_marker("slow") else 0.0
        seconds[_kin(item)] = seconds.get(_kin(item), 0.0) + known.get(item.nodeid, guess)
    items.sort(key=lambda item: (-seconds[_kin(item)], _kin(item)))


def _kin(item: pytest.Item) -> str:
    """What a test shares its fixtures with."""
    return group_of(item) or str(item.path)
