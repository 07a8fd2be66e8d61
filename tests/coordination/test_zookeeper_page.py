"""docs/internals/zookeeper.md against `klog.coordination.paths`, and against what a cluster in use has in ZooKeeper."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from confluent_kafka import Consumer as Client

import klog
from klog.coordination import paths
from klog.coordination.zookeeper import ZooKeeper
from tests.broker_fixture import ROOT, RunningBroker
from tests.zookeeper_fixture import session_of

PAGE = (ROOT / "docs" / "internals" / "zookeeper.md").read_text()
ROWS: dict[str, str] = dict(re.findall(r"^\| `([^`]+)`(?: \(e\))? \| (.*) \|$", PAGE, flags=re.M))
EPHEMERAL = set(re.findall(r"^\| `([^`]+)` \(e\)", PAGE, flags=re.M))
PLACES = {
    "name": "<topic>",
    "topic": "<topic>",
    "partition_id": "<partition>",
    "broker_id": "<broker>",
    "group": "<group>",
    "consumer": "<consumer>",
    "slot": "<slot>",
    "schema_id": "<id>",
    "digest": "<digest>",
    "act_id": "<act>",
    "topic_id": "<topicid>",
}
OTHER = {
    "user_config": {"name": "<user>"},
    "entity_config": {"entity_path": "users/<user>/clients/<client>"},
    "group": {"name": "<group>"},
    "subject": {"name": "<subject>"},
    "schema": {"schema_id": "<id>"},
}
OF_USERS = {"config", "settings", "listener_security_protocol_map", "subscription"}
NOT_A_PATH = {"group_node", "group_name", "ancestors"}


def made() -> Iterator[str]:
    """Each path that `paths` can make, its parts named as on the page."""
    for name, function in inspect.getmembers(paths, inspect.isfunction):
        if function.__module__ == paths.__name__ and name not in NOT_A_PATH:
            asked = inspect.signature(function).parameters
            yield function(**{one: {**PLACES, **OTHER.get(name, {})}[one] for one in asked})
    yield from map(paths.entity_config, ("clients/<client>", "ips/<address>"))


def test_each_path_that_klog_makes_is_on_the_page() -> None:
    found = list(made())
    assert len(found) > 20
    assert not [path for path in map(unquote, found) if path not in ROWS]


def row_of(path: str) -> str:
    """The page's name for a path of a cluster; the path itself where the page has none."""
    for one in ROWS:
        if re.fullmatch(re.sub(r"<[a-z]+>", "[^/]+", one), path):
            return one
    return path


def walk(zookeeper: ZooKeeper, path: str = "/") -> Iterator[tuple[str, bytes, bool]]:
    """(path, data, whether it is ephemeral) of all nodes below."""
    for child in zookeeper.children(path):
        below = f"{path.rstrip('/')}/{child}"
        node = zookeeper.find(below)
        if node is not None:
            yield below, node.data, bool(node.stat.owner_session)
            yield from walk(zookeeper, below)


def keys_of(value: object) -> set[str]:
    """Of all objects in it; not those that are numbers, or that users have named."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if isinstance(value, dict):
        inner = [one for key, one in value.items() if key not in OF_USERS]
        return {key for key in value if not key.isdigit()}.union(*map(keys_of, inner))
    return set()


def test_what_a_cluster_has_in_zookeeper_is_on_the_page(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    with klog.Producer(zookeeper=broker.zookeeper) as producer:
        producer.send("clicks", b"one")
    member = Client({"bootstrap.servers": broker.bootstrap, "group.id": "stock", "auto.offset.reset": "earliest"})
    member.subscribe(["clicks"])
    message = member.poll(30)
    assert message is not None
    member.commit(message, asynchronous=False)
    with klog.Consumer(zookeeper=broker.zookeeper, group="paper", auto_offset_reset="smallest") as consumer:
        (stream,) = consumer.create_message_streams({"clicks": 1})["clicks"]
        assert next(iter(stream)).value == b"one"
        consumer.commit_offsets()
        with session_of(broker.zookeeper) as zookeeper:
            nodes = list(walk(zookeeper))
    member.close()
    seen = {row_of(path) for path, _, _ in nodes} & ROWS.keys()
    assert len(seen) > 20
    for path, data, is_ephemeral in nodes:
        row = row_of(path)
        if data or is_ephemeral:
            assert row in ROWS, f"{path} is not on the page"
            assert (row in EPHEMERAL) == is_ephemeral, path
        if data.startswith(b"{"):
            unknown = {key for key in keys_of(json.loads(data)) if not re.search(rf'[`"]{key}["`]', ROWS[row])}
            assert not unknown, f"{path}: {data!r}"
