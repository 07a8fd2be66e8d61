"""Topics that come, change and go while others read and write them."""

from __future__ import annotations

import pytest

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, offsets, produce, values
from tests.server.wire import RawConnection, fetch_request


def test_a_long_poll_ends_when_its_topic_goes(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send(codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "test"))
        waiting.send(codec.encode_request(codec.request(ApiKey.API_VERSIONS, 0), 2, "test"))
        ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, timeout=10_000, topic_names=[topic])
        _, answer = codec.decode_response(waiting.answer(), ApiKey.FETCH, 11)
        assert error(answer.responses[0].partitions[0]) in (3, 6)
        assert waiting.answer()[:4] == b"\0\0\0\2"


@pytest.mark.slow
def test_a_name_again_and_again(broker: RunningBroker, topic: str) -> None:
    for round_ in range(3):
        create(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, [values(round_ + 1)])
        assert offsets(broker.bootstrap, topic) == (0, round_ + 1)
        (gone,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, timeout=10_000, topic_names=[topic]).responses
        assert error(gone) == 0
