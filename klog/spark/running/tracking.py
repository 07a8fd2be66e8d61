"""How far Spark's jobs are, by their tasks."""

from __future__ import annotations

from typing import Any


def fraction_done(spark: Any) -> float | None:
    """The share of tasks of the running stages that have ended; None if none runs, or if it is unknown (Connect).

    ``spark`` is a context or a session.
    """
    context = getattr(spark, "_sc", spark if hasattr(spark, "statusTracker") else None)
    if context is None:
        return None
    tracker = context.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    tasks = sum(info.numTasks for info in infos if info is not None)
    return sum(info.numCompletedTasks for info in infos if info is not None) / tasks if tasks else None
