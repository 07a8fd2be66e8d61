"""Fixtures that all rooms share: a real ZooKeeper, real brokers; and the seed of a run, printed when it fails."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.broker_fixture import broker, make_broker, topic
from tests.zookeeper_fixture import zk_chroot, zookeeper

__all__ = ["broker", "make_broker", "topic", "zk_chroot", "zookeeper"]

# The machine may be busy: no test is to fail for being slow, and failures print the blob that repeats them.
settings.register_profile(
    "klog", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("klog")
