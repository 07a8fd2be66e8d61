"""Java that starts Spark quickly: the tests do so some ten times, and have little for it to do."""

from __future__ import annotations

JVM_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a short run; a long one would be slower."""


def spark_environment() -> dict[str, str]:
    """What to add to the environment of a process that starts Spark, its servers, or klog that does."""
    return {"JAVA_TOOL_OPTIONS": JVM_QUICK_START}  # of all JVMs below it, ZooKeeper's too
