"""Fixtures of the tests with several brokers."""

from __future__ import annotations

from tests.cluster_fixture import make_cluster, shared_three, three

__all__ = ["make_cluster", "shared_three", "three"]
