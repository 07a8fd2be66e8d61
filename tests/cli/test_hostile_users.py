"""Goal: who names users, groups and topics of a secured cluster commands no terminal, log, page or shell of operators.

`test_terminal` has messages and groups; here are users, permissions, denials, acts and the lines that are to be copied.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from klog.client.blocking import BlockingChannel
from klog.coordination.embedded import ZooKeeperServer
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security.client_security import ClientSecurity
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.cli.test_terminal import HOSTILE, shown
from tests.cli.tsv import from_tsv
from tests.rows import each
from tests.security.broker_doors import add_user, listen_to, ports_of
from tests.until import until

FORGED = "2026-11-25T03:00:00.000Z ERROR   server.broker: forged"
NAME = (
    f"x\x1b]0;owned\x07\x9b2J\u202e\n{FORGED}\r<img src=x onerror=alert(1)>"
    "'; touch owned; '=cmd|' /C calc'!A0\t,$(touch owned)"
)
"""Escape sequences, a change of direction, lines of a log, HTML, a formula, and what a shell would carry out."""
PASSWORD = "a password of some length"


@pytest.fixture(scope="module")
def hostile(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose user of that name has asked for a topic and a group of that name, and was denied."""
    broker = RunningBroker(tmp_path_factory.mktemp("hostile"), f"{zookeeper.address}/hostile-{secrets.token_hex(4)}")
    broker.listen = listen_to("PLAINTEXT", "SASL_PLAINTEXT")
    broker.settings = {
        "authorizer.class.name": "klog",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    add_user(broker, NAME, PASSWORD)
    with broker.running():
        ports = ports_of(broker)
        broker.bootstrap = f"localhost:{ports['PLAINTEXT']}"
        security = ClientSecurity("SASL_PLAINTEXT", "SCRAM-SHA-256", NAME, PASSWORD)
        channel = BlockingChannel.connect("localhost", ports["SASL_PLAINTEXT"], security=security, client_id=NAME)
        try:
            topics = [{"name": NAME}]
            found = channel.request(
                codec.request(ApiKey.METADATA, 5, topics=topics, allow_auto_topic_creation=True)
            ).topics[0]
            assert found.error_code.value == 29 and found.name == NAME
            found = channel.request(codec.request(ApiKey.FIND_COORDINATOR, 2, key=NAME, key_type=0))
            assert found.error_code.value == 30
        finally:
            channel.close()
        assert klog("acl", "add", f"User:{NAME}", "read", f"topic:{NAME}?", "-B", broker.bootstrap).code == 0
        # Denials are told by events, which the broker sends some time after it has answered.
        until(lambda: '"denied"' in klog("events", "-o", "json", "-B", broker.bootstrap).stdout, "the denials")
        yield broker


def of(rows: Any, key: str) -> list[str]:
    return [row[key] for row in rows]


@each(
    "words",
    [
        "user list",
        "acl list",
        "events",
        "zk tree /config/users",
    ],
)
def test_a_terminal_shows_it_and_does_not_obey_it(hostile: RunningBroker, words: str) -> None:
    text = shown(*words.split(), "-B", hostile.bootstrap)
    assert "owned" in text and not set(text) & set(HOSTILE)
    assert not any(line.startswith(FORGED) for line in text.replace("\r", "\n").split("\n"))


def test_machines_read_it_as_it_is(hostile: RunningBroker) -> None:
    for words, key, wanted in (("user list", "user", NAME), ("acl list", "principal", f"User:{NAME}")):
        line = [*words.split(), "-B", hostile.bootstrap, "-o"]
        as_json = klog(*line, "json")
        assert wanted in of(as_json.rows, key)
        assert wanted in of(yaml.safe_load(klog(*line, "yaml").stdout)["rows"], key)
        head, *rows = klog(*line, "tsv").stdout.rstrip("\n").split("\n")
        at = head.split("\t").index(key.upper())
        assert wanted in [from_tsv(row.split("\t")[at]) for row in rows]
        assert len(rows) == len(as_json.rows)
        lines = klog(*line, "jsonl").stdout.splitlines()
        assert wanted in of([json.loads(one) for one in lines], key) and len(lines) == len(rows)


def test_the_log_of_the_broker_has_no_line_of_its(hostile: RunningBroker) -> None:
    hostile.wait_for_log("denied", "owned")
    text = hostile.log_text
    assert not any(line.startswith(FORGED) for line in text.splitlines())
    assert not set(text) & set(HOSTILE)


def test_the_page_shows_it_as_text(hostile: RunningBroker, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert klog("status", "--html", path, "-B", hostile.bootstrap).code == 0
    text = path.read_text()
    assert "<img src=x" not in text and not set(text) & set(HOSTILE)


def test_what_is_to_be_copied_is_one_command(hostile: RunningBroker) -> None:
    """A denied name, in the command that would allow it."""

    def told() -> list[str]:
        found = klog("status", "denied", f"User:{NAME}", "-B", hostile.bootstrap, "-o", "json")
        return [row["do"].split("`")[1] for row in found.rows if row["do"]] if found.stdout else []

    for command in until(told, "what would allow it"):
        words = shlex.split(command)
        assert words[:3] == ["klog", "acl", "add"] and words[3] == f"User:{NAME}" and len(words) == 6
        assert words[5] == f"group:{NAME}"
    hint = klog("user", "add", NAME, "--generate", "-B", hostile.bootstrap, "-o", "json").error["hint"]
    assert shlex.split(hint) == ["klog", "user", "passwd", NAME]
