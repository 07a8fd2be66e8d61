"""Fixtures that all rooms share: a real ZooKeeper, real brokers; and the seed of a run, printed when it fails."""

from __future__ import annotations

import signal
from typing import Any

import pytest
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share a Spark session go to one worker, all others to whoever is free.

    What `--dist loadgroup` would do: xdist 3.8 tells groups by a suffix of the node id that pytest 9.2 does not keep.
    """
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SPARK_MODULES):
                return "spark"
            return nodeid.partition("::")[0] if nodeid.startswith(OWN_SERVERS) else nodeid

    return SparkTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a minute are not to be among the last: one worker would have nothing to do meanwhile."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


LONG = ("tests/spark/test_tour_pipeline.py", "tests/spark/test_export_follow.py")
"""What is long and stands far behind in the alphabet."""

OWN_SERVERS = ("tests/spark/test_standalone.py", "tests/spark/test_store.py")
"""Modules whose tests share servers of theirs, which take long to start."""

SPARK_MODULES = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        *("decoded_export", "export_formats", "export_spark", "pipeline_kills"),
        *("queries", "source", "spark_kafka", "sql", "store_export"),
    )
)
