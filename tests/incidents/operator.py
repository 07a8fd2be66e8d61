"""The operator of an incident: looks, asks why, mends and takes back, by klog alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cli.runner import Ran, klog
from tests.cluster_fixture import RunningCluster

Rows = list[dict[str, Any]]


class Operator:
    """Runs command lines against a cluster, by the addresses of all its brokers: some may be down."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(one.bootstrap for one in cluster.brokers.values())

    def run(self, *words: object, input: str = "") -> Ran:
        """A command line, with JSON where it reports rows."""
        return klog(*words, "-B", self.bootstrap, "-o", "json", input=input)

    def rows(self, *words: object) -> Rows:
        """The rows of a command that ends with 0."""
        ran = self.run(*words)
        assert ran.code == 0, ran
        return ran.rows

    def text(self, *words: object, input: str | bytes = "") -> str:
        """What a command that ends with 0 writes to stdout."""
        ran = klog(*words, "-B", self.bootstrap, input=input)
        assert ran.code == 0, ran
        return ran.stdout

    def values(self, topic: str) -> list[str]:
        """All messages of a topic."""
        return self.text("tail", topic, "-o", "start", "-e").splitlines()

    def cause(self, *subject: object, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The cause that `klog why` finds, as soon as it is the expected one: the cluster notices after a time."""
        found: list[dict[str, Any]] = []
        last = Ran(0, "", "")

        def is_found() -> bool:
            nonlocal last
            last = self.run("why", *subject)
            found[:] = last.rows[-1:] if last.code == 1 and last.stdout else []
            return bool(found) and until(found[0])

        try:
            self.cluster.wait_until(is_found, "klog why finds the cause")
        except AssertionError as error:
            raise AssertionError(f"klog why {subject}: {last}") from error
        return found[0]

    def act(self, **wanted: object) -> dict[str, Any]:
        """The last act that has these columns."""
        rows = [row for row in self.rows("acts", "list") if wanted.items() <= row.items()]
        assert rows, f"no act has {wanted}"
        return rows[-1]

    def undo(self, act: dict[str, Any]) -> None:
        assert self.run("undo", act["act"], "--yes").code == 0
