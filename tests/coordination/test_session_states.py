"""Connected, suspended, expired: what a session's owner is told, and what requests do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from klog.coordination.session import FOLLOWS, SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import SessionLost
from tests.coordination.conftest import States, expire
from tests.zookeeper_proxy import ZooKeeperProxy

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED


def test_a_short_cut_keeps_the_session(
    through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy, states: States, zk: ZooKeeper
) -> None:
    session = through(on_state=states)
    session.create("/e", ephemeral=True)
    before = session.session_id
    proxy.cut()
    states.wait_for(CONNECTED, SUSPENDED, CONNECTED)
    assert session.session_id == before
    assert zk.exists("/e") is not None


def test_silence_beyond_the_timeout_expires_the_session(
    through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy, states: States, zk: ZooKeeper
) -> None:
    """The server decides: the ephemeral goes after the session's time-out, the client hears of it when it is back."""
    session = through(on_state=states, session_timeout_ms=1000)
    session.create("/e", ephemeral=True)
    before = session.session_id
    gone = threading.Event()
    assert zk.exists("/e", lambda _: gone.set()) is not None
    with proxy.silent():
        assert gone.wait(20)
        states.wait_for(CONNECTED, SUSPENDED)
        assert session.session_id == before, "what is ours stays ours while there is no connection"
        begun = time.monotonic()
        with pytest.raises(SessionLost):
            session.get("/e")
        assert time.monotonic() - begun < 20  # bounded by the operation time-out, which is the session's: a second
    states.wait_for_last(SUSPENDED, EXPIRED, CONNECTED)
    assert session.session_id != before
    assert session.exists("/e") is None
    session.create("/e", ephemeral=True)  # it goes on under the new session


def test_a_session_ended_behind_our_back_is_expired(connect: Callable[..., ZooKeeper], states: States) -> None:
    session = connect(on_state=states)
    session.create("/e", ephemeral=True)
    expire(session)
    states.wait_for_last(SUSPENDED, EXPIRED, CONNECTED)
    assert session.state is CONNECTED
    assert session.exists("/e") is None


def test_a_watch_is_told_that_it_is_gone(connect: Callable[..., ZooKeeper], states: States) -> None:
    """Nothing is missed in silence: whoever watches reads again on NONE."""
    session = connect(on_state=states)
    kinds: list[str] = []
    told = threading.Event()

    def watch(event: object) -> None:
        kinds.append(event.kind)  # type: ignore[attr-defined]
        told.set()

    session.children("/", watch)
    expire(session)
    assert told.wait(20)
    assert kinds[0] == "NONE"


def test_stopping_is_not_reported_as_a_loss(connect: Callable[..., ZooKeeper], states: States) -> None:
    session = connect(on_state=states)
    session.stop()
    session.stop()
    assert states.seen == [CONNECTED]


def test_a_stop_ends_requests_that_wait(through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy) -> None:
    session = through(session_timeout_ms=4000)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            session.get("/")
        except SessionLost as error:
            failures.append(error)

    with proxy.silent():
        asking = threading.Thread(target=ask)
        asking.start()
        stopping = threading.Thread(target=session.stop)
        stopping.start()
        asking.join(20)
        assert not asking.is_alive()
    stopping.join(30)
    assert len(failures) == 1


def test_the_table_of_states() -> None:
    assert set(FOLLOWS) == {None, *SessionState}
    for state, following in FOLLOWS.items():
        assert state not in following


def test_calls_one_after_the_other_do_not_each_wait_for_what_is_away(
    through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy, states: States
) -> None:
    session = through(session_timeout_ms=20_000, operation_timeout_s=2.0, on_state=states)
    session.create("/a")
    proxy.close()
    states.wait_for(CONNECTED, SUSPENDED)
    begun = time.monotonic()
    for call in (lambda: session.get("/a"), lambda: session.set("/a", b"1"), lambda: session.get_many(["/a"])) * 5:
        with pytest.raises(SessionLost, match="suspended"):
            call()
    assert 1.8 < time.monotonic() - begun < 15, "fifteen limits of two seconds would be thirty"
