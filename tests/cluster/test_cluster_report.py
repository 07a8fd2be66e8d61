"""Goal: the page about a cluster says what is so, loads nothing, and shows hostile names as text.

Method: real brokers; the page is parsed, and laid out by a real browser where there is one.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klog.tools import cluster_report
from tests.browser import NEEDED, check_fits, dom_of
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import send

EVIL = "<script>document.title='owned'</script><img src=http://x.invalid/a onerror=alert(1)>\u202e"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Parsed(HTMLParser):
    """Tags in order, each closed; and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def made(shared_three: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a cluster with a dead broker, and with a hostile group and client."""
    shared_three.heal()
    topic = "report-topic"
    admin = AdminClient({"bootstrap.servers": shared_three.bootstrap, "client.id": EVIL})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(20)
    shared_three.wait_in_sync(topic)
    send(shared_three.bootstrap, topic, b"0123456789\n" * 1000)
    consumer = Consumer({"bootstrap.servers": shared_three.bootstrap, "group.id": EVIL})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    shared_three.kill(3)
    shared_three.wait_until(lambda: 3 not in shared_three.isr_of(topic), "broker 3 is out of sync")
    at = ("--since", "@-1m", "-B", shared_three.bootstrap, "-o", "json")

    def is_told() -> bool:  # the topic of events is created some seconds after the first start
        told = klog("events", "broker", 3, "--kind", "broker-down", *at)
        return told.code == 0 and bool(told.rows)

    shared_three.wait_until(is_told, "its death is among the events")
    page = tmp_path_factory.mktemp("report") / "page.html"
    ran = klog("status", "--html", page, "-o", "json", "-B", shared_three.bootstrap)
    shared_three.heal()
    assert ran.code == 0, ran.stderr
    assert ran.rows[0]["brokers"] == 3 and ran.rows[0]["findings"] > 0
    return page


def test_the_page_is_whole_and_loads_nothing(made: Path) -> None:
    parsed = Parsed(made.read_text())
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "form", "a"}
    for _, attributes in parsed.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "srcdoc")}
    for wanted in (
        "Brokers",
        "Partitions in trouble",
        "Findings",
        "Groups by lag",
        "Lag of groups",
        "Acts of the last day",
        "2/3",
    ):
        assert wanted in parsed.text
    # Of two event loops, each of which has one core at most.
    assert [int(found) <= 250 for found in re.findall(r"average (\d+)% in all", parsed.text)] == [True]
    assert "sync: 3" in parsed.text and "dead" in parsed.text
    why = parsed.text.partition("Findings")[2]
    assert "broker 3 went down" in why, "the cause"
    assert EVIL[:-1] + "\\u202e" in parsed.text  # as it was written, its change of direction escaped
    # Each wide and narrow: six of brokers, and that of groups where one of them has a past.
    assert sum(tag == "svg" for tag, _ in parsed.tags) in (12, 14)


def test_a_history_that_no_broker_would_send() -> None:
    names = ("messages_in", "cpu")
    assert cluster_report._values(names, (float("nan"), 0.5)) == {"messages_in": 0.0, "cpu": 50.0}
    assert cluster_report._values(names, (float("inf"),)) == {"messages_in": 0.0, "cpu": 0.0}
    assert cluster_report._values(names, (-1.0, 2.0, 3.0)) == {"messages_in": 0.0, "cpu": 200.0}


@NEEDED
@pytest.mark.parametrize("script", [True, False])
def test_in_a_real_browser(made: Path, tmp_path: Path, script: bool) -> None:
    shown = dom_of(made, tmp_path, script=script)
    assert "owned" not in shown.partition("<title>")[2].partition("</title>")[0]
    assert "<script" not in shown.lower() and "<svg" in shown


@NEEDED
def test_it_fits_a_phone_and_a_desktop(made: Path, tmp_path: Path) -> None:
    check_fits(made.read_text(), tmp_path)
