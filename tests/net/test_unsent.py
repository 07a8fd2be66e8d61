"""Answers that nobody takes do not fill the broker's memory (rule P2)."""

from __future__ import annotations

from dataclasses import dataclass

from klog.net.memory_pool import PACE, PACE_FULL, TINY_BYTES
from klog.net.unsent import Unsent

MIB = 1 << 20


@dataclass(eq=False)
class Peer:
    waiting_bytes: int
    taken_bytes: int = 0
    waits_to_send: bool = True


def test_who_takes_a_little_goes_on_as_long_as_there_is_room() -> None:
    unsent, slow, deaf = Unsent(100 * MIB), Peer(4 * MIB), Peer(4 * MIB)
    for second in range(200):
        slow.taken_bytes += PACE.bytes // 20
        gone = {one for one, _ in unsent.too_slow([slow, deaf], float(second))}
        assert gone == ({deaf} if second and second >= PACE.seconds else set())


def test_who_holds_much_has_to_hurry_where_too_much_waits() -> None:
    unsent = Unsent(10 * MIB)
    slow, quick, trifle, done = Peer(8 * MIB), Peer(4 * MIB), Peer(TINY_BYTES), Peer(4 * MIB, waits_to_send=False)
    everybody = [slow, quick, trifle, done]
    for second in range(int(PACE_FULL.seconds)):
        slow.taken_bytes += 1000
        quick.taken_bytes += PACE_FULL.bytes
        assert not list(unsent.too_slow(everybody, float(second)))
    ((gone, why),) = unsent.too_slow(everybody, PACE_FULL.seconds)
    assert gone is slow
    assert f"{slow.waiting_bytes + quick.waiting_bytes + trifle.waiting_bytes} bytes " in why
    assert not list(unsent.too_slow([quick, trifle, done], PACE_FULL.seconds + 1))


def test_a_peer_that_has_taken_all_begins_anew() -> None:
    unsent, peer = Unsent(100 * MIB), Peer(MIB)
    assert not list(unsent.too_slow([peer], 0.0))
    peer.waits_to_send = False
    assert not list(unsent.too_slow([peer], 20.0))
    peer.waits_to_send = True
    assert not list(unsent.too_slow([peer], 2 * PACE.seconds))
    assert list(unsent.too_slow([peer], 3 * PACE.seconds))
