"""0.7's settings of some topics, in a running broker."""

from __future__ import annotations

from collections.abc import Callable

from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.server.asking import produce, values


def test_settings_of_some_topics(make_broker: Callable[..., RunningBroker]) -> None:
    maps = {
        "topic__partition__count__map": "clicks:3",
        "topic__log__file__size": "clicks:500",
        "topic__log__retention__hours": "clicks:10",
    }
    broker = make_broker(**maps).start()
    at = ["-B", broker.bootstrap]
    for name, partitions in (("clicks", 3), ("other", 1)):
        created = klog("topic", "create", name, "-o", "json", *at)
        assert created.rows[0]["partitions"] == partitions, created
        produce(broker.bootstrap, name, [[one] for one in values(10, size=200)])
    assert len(list(broker.folder.rglob("clicks-0/*.log"))) > 3
    assert len(list(broker.folder.rglob("other-0/*.log"))) == 1
    shown = {
        row["name"]: (row["value"], row["source"]) for row in klog("topic", "config", "clicks", "-o", "json", *at).rows
    }
    assert shown["retention.ms"] == ("36000000", "start")
    klog("topic", "config", "clicks", "segment.bytes=100000", "-y", *at)
    produce(broker.bootstrap, "clicks", [[one] for one in values(3, size=200)])
    segments = len(list(broker.folder.rglob("clicks-0/*.log")))
    produce(broker.bootstrap, "clicks", [[one] for one in values(10, size=200)])
    assert len(list(broker.folder.rglob("clicks-0/*.log"))) == segments, "the topic's own setting comes first"
