"""A message that is too large: the answer and the log say which settings bound it, and nobody can fill the log so."""

from __future__ import annotations

from collections.abc import Callable

from klog.errors import MessageTooLarge
from klog.net.channel import Channel
from klog.record.records import encode_batch
from klog.server.event_limits import WINDOW_S, EventLimit
from klog.server.handlers.produce import TOO_LARGE_NOTED_MAX
from tests.broker_fixture import RunningBroker
from tests.server.asking import create, error, produce_request, values, with_channel


def test_it_is_in_the_answer_and_in_the_log_but_not_at_any_rate(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    create(broker.bootstrap, "narrow", max_message_bytes="200")
    request = produce_request("narrow", bytes(encode_batch(values(1, size=1000))))

    async def send(channel: Channel) -> list[str]:
        said = []
        for _ in range(TOO_LARGE_NOTED_MAX + 20):
            one = (await channel.request(request)).responses[0].partition_responses[0]
            assert error(one) == MessageTooLarge.wire
            said.append(one.error_message)
        return said

    said = with_channel(broker.bootstrap, send)
    assert set(said) == {said[0]}
    assert {"200", "max.message.bytes", "message.max.bytes"} <= set(said[0].split())
    lines = [line for line in broker.log_text.splitlines() if "narrow-0:" in line]
    assert len(lines) == TOO_LARGE_NOTED_MAX and all(said[0] in line for line in lines)


def test_seldom() -> None:
    limit = EventLimit(2)
    assert [limit.allows(now) for now in (0.0, 1.0, 2.0, WINDOW_S, WINDOW_S + 0.5, WINDOW_S + 1.0)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
