"""Where Spark is to run, and the context or session there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klog.errors import UsageError
from klog.spark.running.connect import connect_session
from klog.spark.running.context import start_context
from klog.spark.running.session import start_session


@dataclass(frozen=True)
class SparkTarget:
    """Where Spark is to run, as a command's options say it."""

    master: str | None = None
    """Spark's; None: this machine's cores, or spark-submit's master."""
    remote: str | None = None
    """A Connect server, ``sc://host:port``, instead of a master."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``spark.*``, over klog's own."""
    cache: Path | None = None
    """A folder where the archive of the JVM's classes is kept for later starts; None: there is none."""

    @property
    def has_context(self) -> bool:
        """Whether tasks can be given to Spark without a query; a Connect server takes queries alone."""
        return self.remote is None

    def context(self) -> Any:
        """The running context, or a new one, with no session if there is no need of one. Errors as `session`."""
        if not self.has_context:
            raise UsageError(f"--remote {self.remote}: a Connect server has no context")
        return start_context(self.master, dict(self.settings), self.cache)

    def session(self) -> Any:
        """The running session, or a new one, that knows ``format("klog")``.

        Errors of `start_session` and `connect_session`; UsageError where both a master and a server are named.
        """
        if self.remote is None:
            return start_session(self.master, dict(self.settings))
        if self.master is not None:
            raise UsageError("--master and --remote exclude each other", hint="a Connect server has its own master")
        return connect_session(self.remote, self.settings)
