"""Fixtures of the incidents: three brokers, and an operator who has klog and nothing else."""

from __future__ import annotations

import pytest

from tests.cluster_fixture import RunningCluster, make_cluster, shared_three, three
from tests.incidents.operator import Operator

__all__ = ["make_cluster", "operator", "shared_three", "three"]


@pytest.fixture
def operator(three: RunningCluster) -> Operator:
    return Operator(three)
