"""Goal: a name that a stranger has chosen is one word of the command lines that klog gives an operator to copy.

What such a name shows on a terminal, in a log and on a page is in `test_terminal`, `test_log_lines` and
`tests/cluster/test_cluster_report.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from klog.client.blocking import BlockingChannel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security.client_security import ClientSecurity
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.security.broker_doors import add_user, listen_to, ports_of
from tests.until import until

NAME = "x\x1b]0;owned\x07\n\r<img src=x>'; touch owned; '=cmd|' /C calc'!A0\t,$(touch owned)"
"""Escape sequences, ends of lines, HTML, a formula, and what a shell would carry out."""
PASSWORD = "a password of some length"


def test_what_is_to_be_copied_is_one_command(make_broker: Callable[..., RunningBroker]) -> None:
    """A user of that name was denied a group of that name."""
    broker = make_broker()
    broker.listen = listen_to("PLAINTEXT", "SASL_PLAINTEXT")
    broker.settings = {
        "authorizer.class.name": "klog",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    add_user(broker, NAME, PASSWORD)
    broker.start()
    ports = ports_of(broker)
    at = ("-B", f"localhost:{ports['PLAINTEXT']}", "-o", "json")
    security = ClientSecurity("SASL_PLAINTEXT", "SCRAM-SHA-256", NAME, PASSWORD)
    channel = BlockingChannel.connect("localhost", ports["SASL_PLAINTEXT"], security=security, client_id=NAME)
    try:
        found = channel.request(codec.request(ApiKey.FIND_COORDINATOR, 2, key=NAME, key_type=0))
        assert found.error_code.value == 30
    finally:
        channel.close()

    def told() -> list[str]:
        found = klog("status", "denied", f"User:{NAME}", *at)
        rows = found.rows if found.stdout else []
        return [row["do"].split("`")[1] for row in rows if "klog acl add" in (row["do"] or "")]

    (command,) = until(told, "what would allow it")
    assert shlex.split(command)[:4] == ["klog", "acl", "add", f"User:{NAME}"]
    assert shlex.split(command)[5:] == [f"group:{NAME}"]
    hint = klog("user", "add", NAME, "--generate", *at).error["hint"]
    assert shlex.split(hint) == ["klog", "user", "passwd", NAME]
