"""ACLs from the command line to a broker that obeys them: added, listed, checked, removed, undone; and why denied."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from klog.coordination import acls, paths
from klog.coordination.acts import Actor
from klog.coordination.zookeeper import ZooKeeper
from klog.security.permissions import Acl, Operation, Pattern, Permission, ResourceType
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.until import until

MakeBroker = Callable[..., RunningBroker]
Klog = Callable[..., Ran]
ME = "User:ANONYMOUS"


@pytest.fixture
def owner(make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[Klog]:
    """klog, at a broker at which it is a super user."""
    monkeypatch.setenv("KLOG_HOME", str(tmp_path))
    broker = make_broker(**{"authorizer.class.name": "klog", "super.users": ME}).start()
    yield lambda *words: klog(*words, "-B", broker.bootstrap)


def test_acls_are_added_listed_checked_removed_and_undone(owner: Klog) -> None:
    assert owner("acl", "list", "-o", "json").rows == []
    added = owner("acl", "add", "alice", "read,write", "topic:orders", "-o", "json")
    assert added.code == 0
    expected = [
        {
            "principal": "User:alice",
            "permission": "Allow",
            "operation": operation,
            "resource": "topic:orders",
            "pattern": "literal",
            "host": "*",
        }
        for operation in ("Read", "Write")
    ]
    assert added.rows == expected
    assert owner("acl", "list", "-o", "json").rows == expected
    assert owner("acl", "add", "alice", "read", "topic:orders").code == 0  # once more: no error
    assert owner("acl", "add", "User:*", "all", "topic:ord", "--prefixed", "--deny", "--host", "10.0.0.7").code == 0
    assert len(owner("acl", "list", "topic:orders", "-o", "json").rows) == 3
    assert [one["pattern"] for one in owner("acl", "list", "topic:order", "-o", "json").rows] == ["prefixed"]
    assert owner("acl", "list", "--principal", "bob", "-o", "json").rows == []

    checked = owner("acl", "check", "alice", "describe", "topic:orders", "-o", "json")
    assert (checked.code, checked.rows[0]["allowed"]) == (0, True)
    assert "User:alice Read" in checked.rows[0]["rule"]
    denied = owner("acl", "check", "alice", "read", "topic:orders", "--host", "10.0.0.7", "-o", "json")
    assert (denied.code, denied.rows[0]["allowed"]) == (1, False)
    assert "Deny User:* All" in denied.rows[0]["rule"]
    assert owner("acl", "check", "bob", "read", "topic:orders").code == 1
    assert owner("acl", "check", "ANONYMOUS", "alter", "cluster", "-o", "json").rows[0]["rule"] == "super.users"

    missing = owner("acl", "remove", "alice", "read,delete", "topic:orders")
    assert missing.code == 1
    assert "User:alice Delete" in missing.stderr
    assert len(owner("acl", "list", "-o", "json").rows) == 3  # nothing is removed then
    assert owner("acl", "remove", "alice", "read", "topic:orders").code == 0
    assert owner("acl", "check", "alice", "read", "topic:orders").code == 1

    act, *_ = owner("undo", "-o", "json").rows  # what can be undone, the newest first
    assert (act["subject"], act["before"], act["after"]) == ("acl topic:orders", "Allow User:alice Read", "-")
    assert owner("undo", act["act"], "-y").code == 0
    assert owner("acl", "check", "alice", "read", "topic:orders").code == 0
    shown = owner("events", act["act"], "-o", "json").rows[0]
    assert shown["undone_by"] is not None
    again = owner("undo", act["act"], "-y")
    assert again.code == 1
    assert "User:alice Read" in again.stderr


def test_what_is_denied_leaves_an_event_that_tells_the_rule(make_broker: MakeBroker, zookeeper: object) -> None:
    broker = make_broker(**{"authorizer.class.name": "klog"}).start()
    at = ["-B", broker.bootstrap]
    allowed = [
        (ResourceType.TOPIC, "klog.events", Operation.READ),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE),
    ]
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        for kind, name, operation in allowed:
            acl = Acl(ME, "*", operation, Permission.ALLOW)
            acls.change(session, Pattern(kind, name), lambda _, acl=acl: [acl], Actor("t", "here"))  # type: ignore[misc]
        assert session.exists(f"{paths.ACLS}/Topic/klog.events") is not None
    until(lambda: klog("acl", "check", "ANONYMOUS", "read", "topic:klog.events", *at).code == 0, "the ACL")
    until(lambda: klog("why", "denied", "bob", "-o", "json", *at).code == 0, "the topic of events")
    assert klog("produce", "secret", "-p", "0", *at).code == 1
    assert klog("topic", "create", "secret", *at).code == 1

    def told_all() -> Ran | None:
        why = klog("why", "denied", "-o", "json", *at)
        return why if len(why.rows) >= 3 else None

    why = until(told_all, "both denials")
    assert why is not None and why.code == 1
    *told, now = why.rows
    assert {f"{ME}: Create topic:secret", f"{ME}: Describe topic:secret"} <= {
        one["what"].partition(" at ")[0] for one in told
    }
    assert all("no ACL allows it" in one["evidence"] for one in why.rows)
    assert "klog acl add" in now["do"]
    assert klog("why", "denied", "bob", *at).code == 0
    (event, *_) = klog("events", "topic", "secret", "--kind", "denied", "-o", "jsonl", *at).stdout.splitlines()
    assert '"principal": "User:ANONYMOUS"' in event
