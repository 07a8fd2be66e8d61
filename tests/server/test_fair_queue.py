"""FairQueue: who brings much waits behind himself, for a place and for room."""

from __future__ import annotations

import threading

from klog.server.fair_queue import FairQueue

WITHIN_S = 30


def taken(turns: FairQueue[str], count: int) -> list[str]:
    found = [turns.take() for _ in range(count)]
    return [one for one in found if one is not None]


def filled(turns: FairQueue[str], **pieces: int) -> FairQueue[str]:
    for whose, count in pieces.items():
        for number in range(count):
            assert turns.put(whose, f"{whose}{number}") is None
    return turns


def test_everybody_has_a_turn_and_his_own_pieces_keep_their_order() -> None:
    turns = filled(FairQueue[str](), a=4, b=2, c=1)
    assert taken(turns, 7) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_a_newcomer_has_one_piece_of_each_other_in_front_of_him() -> None:
    turns = filled(FairQueue[str](), a=100, b=100)
    assert taken(turns, 5) == ["a0", "b0", "a1", "b1", "a2"]
    turns.put("c", "c0")
    assert taken(turns, 3) == ["b2", "a3", "c0"]
    turns.put("c", "c1")  # whoever comes back stands behind again
    assert taken(turns, 3) == ["b3", "a4", "c1"]


def test_where_it_is_full_whoever_has_most_gives_way() -> None:
    turns = filled(FairQueue[str](waiting_max=6), a=5, b=1)
    assert turns.put("a", "a5") == "a5"
    assert turns.put("c", "c0") == "a4"
    assert turns.put("b", "b1") == "a3"
    assert turns.put("b", "b2") == "b2", "he would have as many as any other"
    assert taken(turns, 6) == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert turns.put("a", "again") is None


def test_a_bound_of_nothing_refuses_all() -> None:
    assert FairQueue[str](waiting_max=0).put("a", "a0") == "a0"


def test_closing_gives_back_what_waits_and_sends_those_home_who_wait() -> None:
    turns, found = FairQueue[str](), list[str | None]()
    waiting = threading.Thread(target=lambda: found.append(turns.take()), daemon=True)
    waiting.start()
    assert turns.close(1) == []
    waiting.join(WITHIN_S)
    assert found == [None]
    assert filled(FairQueue[str](), a=2, b=1).close(0) == ["a0", "a1", "b0"]


def test_many_hands_lose_nothing_and_double_nothing() -> None:
    turns, found = FairQueue[str](), list[str]()

    def work() -> None:
        while (piece := turns.take()) is not None:
            found.append(piece)

    hands = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for one in hands:
        one.start()
    filled(turns, a=500, b=300, c=1)
    while len(found) < 801:
        hands[0].join(0.001)
    assert turns.close(len(hands)) == []
    for one in hands:
        one.join(WITHIN_S)
    assert len(set(found)) == len(found) == 801
