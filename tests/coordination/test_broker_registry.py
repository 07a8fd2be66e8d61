"""Registering a broker: 0.8's entry, one holder of an id, the take-over of one's own dead entry (rules R7, Z1)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from klog.coordination import brokers, cluster, controller_election, paths
from klog.coordination.brokers import Broker, Endpoint, Registration, client_addresses
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BadVersion, BrokerIdInUse, BrokerNotAvailable, ZooKeeperError
from tests.coordination.conftest import States, expire

Connect = Callable[..., ZooKeeper]


@pytest.fixture
def zk(connect: Connect) -> ZooKeeper:
    session = connect()
    cluster.ensure_cluster(session)
    return session


def test_the_entry_is_0_8s_with_our_keys_behind(zk: ZooKeeper) -> None:
    broker = Broker(5, "host.example", 9092, ("dir-b", "dir-a"), "127.0.0.1:9092", "r1", timestamp_ms=1435833841290)
    entry = brokers.register(zk, broker)
    node = zk.get("/brokers/ids/5")
    assert node.data.startswith(
        b'{"jmx_port":-1,"timestamp":"1435833841290","host":"host.example","version":1,"port":9092,'
    )
    assert json.loads(node.data)["log_dirs"] == ["dir-a", "dir-b"]
    assert node.stat.owner_session == zk.session_id == entry.session
    assert entry.incarnation == node.stat.created_zxid
    assert brokers.find(zk, 5) == entry
    assert brokers.live(zk) == [entry]
    brokers.unregister(zk, entry)
    assert brokers.find(zk, 5) is None
    brokers.unregister(zk, entry)


def test_entries_of_0_8_brokers_are_read(zk: ZooKeeper) -> None:
    zk.create("/brokers/ids/10", b'{"jmx_port":-1,"timestamp":"1435833841290","host":"h","version":1,"port":9092}')
    zk.create("/brokers/ids/9", b'{"host":"h9","port":1,"version":1,"later":{"unknown":[]}}')
    assert [(one.broker.broker_id, one.broker.host, one.broker.log_dirs) for one in brokers.live(zk)] == [
        (9, "h9", ()),
        (10, "h", ()),
    ]


@pytest.mark.parametrize("data", [b"", b"creator:h:9092", b"[]", b'{"host":1,"port":2}', b'{"host":"h"}', b"\xff"])
def test_what_is_no_entry_is_named(zk: ZooKeeper, data: bytes) -> None:
    zk.create("/brokers/ids/1", data)
    with pytest.raises(ZooKeeperError, match="/brokers/ids/1"):
        brokers.live(zk)


def test_an_id_in_use_is_refused_with_who_holds_it(zk: ZooKeeper, connect: Connect) -> None:
    holder = brokers.register(zk, Broker(1, "first", 9092, ("dir-a",)))
    for dirs in ((), ("dir-b",)):
        with pytest.raises(BrokerIdInUse, match=r"id 1 .*first:9092.*dir-a"):
            brokers.register(connect(), Broker(1, "second", 9093, dirs))
    assert brokers.find(zk, 1) == holder


def test_an_entry_without_log_dirs_is_never_taken_over(zk: ZooKeeper, connect: Connect) -> None:
    """Another's broker, of 0.8: nothing tells that it is dead."""
    zk.create("/brokers/ids/1", b'{"host":"h","port":1}', ephemeral=True)
    with pytest.raises(BrokerIdInUse):
        brokers.register(connect(), Broker(1, "second", 9093, ("dir-a",)))


@pytest.mark.parametrize("dirs", [("dir-a", "dir-b"), ("dir-a", "dir-b", "dir-c")])
def test_ones_own_dead_entry_is_replaced(zk: ZooKeeper, connect: Connect, dirs: tuple[str, ...]) -> None:
    """R7: the old session still stands, as it does for seconds after a kill; all its dirs are locked by us now."""
    old = brokers.register(zk, Broker(1, "h", 9092, ("dir-a", "dir-b")))
    term = controller_election.elect(zk, 1)
    session = connect()
    new = brokers.register(session, Broker(1, "h", 9092, dirs))
    assert new.incarnation > old.incarnation
    assert new.session == session.session_id
    assert zk.get("/brokers/ids/1").stat.owner_session == session.session_id  # replaced, not reused (Z1)
    assert controller_election.current(session) is None  # its office went with it
    assert not brokers.is_current(zk, old)
    assert brokers.is_current(zk, new)
    with pytest.raises(BadVersion):  # what the old process still writes is fenced
        zk.multi([old.fence])
    brokers.unregister(zk, old)  # as it goes, it removes nothing of ours
    assert brokers.find(zk, 1) == new
    mine = controller_election.elect(session, 1)
    assert (mine.session, mine.epoch) == (session.session_id, term.epoch + 1)
    with pytest.raises(BadVersion):
        zk.multi([term.fence])


def test_a_part_of_the_dirs_is_not_enough(zk: ZooKeeper, connect: Connect) -> None:
    brokers.register(zk, Broker(1, "h", 9092, ("dir-a", "dir-b")))
    with pytest.raises(BrokerIdInUse):
        brokers.register(connect(), Broker(1, "h", 9092, ("dir-a",)))


def test_anothers_controller_stays_when_an_entry_is_replaced(zk: ZooKeeper, connect: Connect) -> None:
    brokers.register(zk, Broker(1, "h", 9092, ("dir-a",)))
    term = controller_election.elect(connect(), 2)
    brokers.register(connect(), Broker(1, "h", 9092, ("dir-a",)))
    found = controller_election.current(zk)
    assert found is not None
    assert (found.broker_id, found.epoch) == (2, term.epoch)


def test_registering_again_after_an_expired_session(connect: Connect, zk: ZooKeeper, states: States) -> None:
    session = connect(on_state=states)
    broker = Broker(1, "h", 9092, ("dir-a",))
    old = brokers.register(session, broker)
    expire(session)
    states.wait_for_last(SessionState.EXPIRED, SessionState.CONNECTED)
    assert brokers.find(zk, 1) is None
    new = brokers.register(session, broker)
    assert (new.session, new.fence_version) == (session.session_id, old.fence_version + 1)
    assert new.incarnation > old.incarnation
    assert not brokers.is_current(session, old)


def test_an_entry_that_another_made_with_the_same_words_is_not_ours(zk: ZooKeeper, connect: Connect) -> None:
    """Same bytes, another session: it must be replaced, or it would vanish with that session."""
    broker = Broker(1, "h", 9092, ("dir-a",), timestamp_ms=7)
    brokers.register(zk, broker)
    session = connect()
    assert brokers.register(session, broker).session == session.session_id


def test_many_race_for_an_id_and_one_gets_it(zk: ZooKeeper, connect: Connect) -> None:
    sessions = [connect() for _ in range(6)]
    outcomes: list[object] = []

    def enter(number: int, session: ZooKeeper) -> None:
        try:
            outcomes.append(brokers.register(session, Broker(1, f"h{number}", 9092, (f"dir-{number}",))))
        except BrokerIdInUse as error:
            outcomes.append(error)

    threads = [threading.Thread(target=enter, args=one) for one in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    won = [one for one in outcomes if not isinstance(one, BrokerIdInUse)]
    assert len(outcomes) == 6
    assert won == [brokers.find(zk, 1)]


def test_live_brokers_can_be_watched(zk: ZooKeeper, connect: Connect) -> None:
    changed = threading.Event()
    assert brokers.live(zk, lambda _: changed.set()) == []
    session = connect()
    brokers.register(session, Broker(3, "h", 9092, ("dir-a",)))
    assert changed.wait(10)
    changed.clear()
    assert [one.broker.broker_id for one in brokers.live(zk, lambda _: changed.set())] == [3]
    session.stop()
    assert changed.wait(10)
    assert brokers.live(zk) == []


def test_one_cluster_id_wins(connect: Connect) -> None:
    sessions = [connect() for _ in range(4)]
    assert cluster.cluster_id(sessions[0]) is None
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda session=session: ids.append(cluster.ensure_cluster(session)))
        for session in sessions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ids) == 4
    assert set(ids) == {cluster.cluster_id(sessions[0])}
    assert len(ids[0]) == 22
    assert sessions[0].get(paths.CLUSTER_ID).data == f'{{"version":"1","id":"{ids[0]}"}}'.encode()


def test_addresses_by_protocol() -> None:
    def entry(broker: Broker) -> Registration:
        return Registration(broker, 1, 1, 0, 0)

    several = entry(
        Broker(
            1,
            "h",
            9092,
            inter_broker="h:9094",
            endpoints=(
                Endpoint("BETWEEN", "SASL_SSL", "h", 9094),
                Endpoint("CLIENTS", "SASL_SSL", "::1", 9093),
                Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),
                Endpoint("ALSO", "PLAINTEXT", "h", 9095),
            ),
        )
    )
    alone = entry(Broker(2, "g", 1, inter_broker="g:2", endpoints=(Endpoint("BETWEEN", "SASL_SSL", "g", 2),)))
    old = entry(Broker(3, "f", 9))
    assert client_addresses([several, alone, old], "SASL_SSL") == "[::1]:9093,g:2"
    assert client_addresses([several, alone, old], "PLAINTEXT") == "h:9092,f:9"
    assert client_addresses([], "SSL") == ""
    with pytest.raises(BrokerNotAvailable) as caught:
        client_addresses([several, alone], "SSL")
    assert "SSL" in caught.value.message and "SASL_SSL, PLAINTEXT" in (caught.value.hint or "")
