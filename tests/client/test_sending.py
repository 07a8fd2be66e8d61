"""What becomes of a send, settled by hand: in any order, by several threads at once."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from klog.client.sending import Place, SendingSet, Settling
from klog.errors import SendFailed, TimedOut
from tests.chance import seed_of


class Answer:
    """librdkafka's word about a message that is in the log."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return self._offset % 3

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [1, 5, 200])
def test_a_set_is_finished_once_and_after_all_were_told(threads: int, count: int) -> None:
    told: list[Place | None] = []
    finished: list[int] = []
    begin = threading.Barrier(threads)
    settling = Settling(is_async=True)
    sending = SendingSet("topic", lambda error, place: told.append(place), settling, count)
    sending.add_done_callback(lambda _: finished.append(len(told)))
    order = random.Random(seed_of(f"settled by {threads}")).sample(range(count), count)

    def settle(share: list[int]) -> None:
        begin.wait(30)
        for index in share:
            sending.delivered(index, None, Answer(100 + index))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(settle, [order[one::threads] for one in range(threads)]))
    assert finished == [count]
    assert sending.result(0) == tuple(Place("topic", (100 + one) % 3, 100 + one) for one in range(count))
    assert set(told) == set(sending.result(0))


def test_a_set_of_which_some_failed_names_them_whatever_their_order() -> None:
    sending = SendingSet("topic", lambda error, place: None, Settling(is_async=True), 3)
    sending.failed(2, TimedOut("late"))
    sending.delivered(1, None, Answer(7))
    assert not sending.done()
    sending.failed(0, TimedOut("later"))
    with pytest.raises(SendFailed, match=r"2 of 3 .*later") as raised:
        sending.result(0)
    assert sorted(raised.value.errors) == [0, 2]
