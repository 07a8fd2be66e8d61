"""Settings on the command line take durations and sizes."""

from __future__ import annotations

from klog.cli.arguments import broker_settings, topic_settings
from tests.rows import each


@each(
    ("given", "plain"),
    [
        ("retention.ms=7d", "604800000"),
        ("retention.ms=1.5h", "5400000"),
        ("retention.ms=-1", "-1"),
        ("retention.ms=1000", "1000"),
        ("retention.ms=soon", "soon"),
        ("segment.bytes=1GiB", "1073741824"),
        ("segment.bytes=64KB", "64000"),
        ("segment.bytes=7d", "7d"),
        ("cleanup.policy=delete", "delete"),
        ("min.insync.replicas=2s", "2s"),
        ("no.such.setting=7d", "7d"),
    ],
)
def test_of_a_topic(given: str, plain: str) -> None:
    name, _, _ = given.partition("=")
    assert topic_settings([given]) == {name: plain}


def test_of_a_broker() -> None:
    given = ["log.retention.ms=7d", "log.segment.bytes=1MiB", "log.file.size=2MB", "log.retention.hours=5"]
    assert broker_settings(given) == {
        "log.retention.ms": "604800000",
        "log.segment.bytes": "1048576",
        "log.file.size": "2000000",
        "log.retention.hours": "5",
    }
