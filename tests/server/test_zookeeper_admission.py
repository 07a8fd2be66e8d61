"""What clients can make ZooKeeper keep is bounded against its heap (rule P2)."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.client.blocking import BlockingChannel
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import HEAP_ALLOWED_MIN_BYTES
from klog.coordination.server_size import server_size
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import PolicyViolation
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.zookeeper_admission import LOOK_EVERY_S, Kind
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.server import asking
from tests.server.asking import ask, commit, create, error, with_channel
from tests.server.group_speaker import Speaker, code
from tests.zookeeper_fixture import klog_home, session_of

PARTITIONS = 200
REFUSED = PolicyViolation.wire


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper with the smallest heap that there is."""
    folder = tmp_path_factory.mktemp("small")
    server = embedded.start(folder, cache=klog_home() / "cache", heap_bytes=HEAP_ALLOWED_MIN_BYTES)
    try:
        server.await_serving()
        yield server
    finally:
        server.stop()


@pytest.fixture
def broker(small: ZooKeeperServer, tmp_path: Path) -> Iterator[RunningBroker]:
    """Has a topic `t`; what it leaves in ZooKeeper is removed."""
    chroot = f"/{uuid.uuid4().hex}"
    found = RunningBroker(tmp_path / "broker", f"{small.address}{chroot}")
    try:
        found.start()
        create(found.bootstrap, "t", PARTITIONS)
        yield found
    finally:
        found.end()
        with session_of(small.address) as session:
            remove(session, chroot)


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[BlockingChannel]:
    host, _, port = broker.bootstrap.rpartition(":")
    with contextlib.closing(BlockingChannel.connect(host, int(port), timeout_s=30)) as found:
        yield found


def remove(session: ZooKeeper, path: str) -> None:
    for name in session.children(path):
        remove(session, f"{path}/{name}")
    session.delete(path)


def share_of(server: ZooKeeperServer) -> float:
    host, _, port = server.address.rpartition(":")
    share = server_size(host, int(port), 5.0).share()
    assert share is not None
    return share


def until(wanted: int, act: Callable[[], int]) -> None:
    """Brokers look every few seconds how much ZooKeeper keeps."""
    deadline_s = time.monotonic() + 4 * LOOK_EVERY_S
    while (found := act()) != wanted:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)


@pytest.mark.slow
def test_whatever_clients_have_kept_is_refused_where_zookeeper_is_full(
    small: ZooKeeperServer, broker: RunningBroker, channel: BlockingChannel, tmp_path: Path
) -> None:
    def new_topic() -> int:
        return error(ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 5, topics=[asking.new_topic("more")]).topics[0])

    def more_partitions() -> int:
        asked = [{"name": "t", "count": PARTITIONS + 1, "assignments": None}]
        request = codec.request(ApiKey.CREATE_PARTITIONS, 1, topics=asked, timeout=10_000, validate_only=False)
        return error(channel.request(request).results[0])

    draw = random.Random(1)

    def join() -> int:
        async def work(channel: Channel) -> int:
            return code(await Speaker(channel, "joined", {}).join(draw.randbytes(10_000), rebalance_ms=1_000))

        return with_channel(broker.bootstrap, work)

    def quota() -> int:
        entity = [{"entity_type": "client-id", "entity_name": "c"}]
        limit = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
        request = codec.request(
            ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": limit}], validate_only=False
        )
        return error(channel.request(request).entries[0])

    def schema() -> int:
        path = tmp_path / "s.avsc"
        path.write_text('"string"')
        ran = klog("schema", "register", "s", path, "-B", broker.bootstrap, "-o", "json")
        return 0 if ran.code == 0 else PolicyViolation.wire if ran.error["code"] == PolicyViolation.code else -1

    def setting() -> int:
        change = {"name": "retention.ms", "config_operation": 0, "value": "86400000"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        asked = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        return error(channel.request(asked).responses[0])

    until(0, lambda: commit(channel, "old", "t", 1))
    until(0, lambda: commit(channel, "joined", "t", 1))
    kept = [
        lambda: commit(channel, "old", "t", 1, "metadata"),
        lambda: commit(channel, "new", "t", 1),
        lambda: commit(channel, "old", "t", 2),
        new_topic,
        more_partitions,
        join,
        quota,
        schema,
        setting,
    ]
    with session_of(broker.zookeeper) as session:
        session.create("/filler", b"")
        while share_of(small) < max(kind.limit for kind in Kind):
            session.create(f"/filler/{time.monotonic_ns()}", bytes(500_000))
        until(REFUSED, kept[0])
        assert [act() for act in kept] == [REFUSED] * len(kept)
        assert not broker.logged("ERROR", "group_cache"), "what is refused fills no log"
        assert commit(channel, "old", "t", 1) == 0, "an offset that has a node is committed all the same"
        remove(session, "/filler")
    until(0, kept[0])
    assert [act() for act in kept] == [0] * len(kept)
