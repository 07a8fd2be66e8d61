"""A task that uses a channel ends when it is cancelled, in whatever moment that is."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from klog.errors import CannotConnect
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import NONCE_BYTES, Introduction
from klog.secret import Secret
from tests.broker_fixture import RunningBroker
from tests.rows import each


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_cancelled_in_the_turn_in_which_the_answer_comes(broker: RunningBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    channel = await Channel.connect(host, int(port), timeout_s=20)
    asking = asyncio.ensure_future(channel.request(codec.request(ApiKey.METADATA, 4, topics=[])))
    await _turns(1)
    (answer,) = channel._waiting.values()
    answer.set_result("an answer")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await channel.close()


@each("turns", range(6))
async def test_cancelled_while_it_is_refused(turns: int) -> None:
    """Where it had been refused before it was cancelled, that is told; it never goes on for ever."""
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        connecting = asyncio.ensure_future(Channel.connect("127.0.0.1", nobody.getsockname()[1], timeout_s=20))
        await _turns(turns)
        was_done = connecting.done()
        connecting.cancel()
        await asyncio.wait([connecting])
        assert connecting.cancelled() or was_done


async def test_cancelled_while_it_closes(broker: RunningBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    channel = await Channel.connect(host, int(port), timeout_s=20)
    closing = asyncio.ensure_future(channel.close())
    await _turns(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await channel.close()
    assert channel.is_closed


def test_a_peer_that_hangs_up_while_a_broker_introduces_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It is told as one that cannot be connected to, once; asyncio has nothing to add."""

    async def run() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        introduction = Introduction(Secret.random(), 1, 2, bytes(NONCE_BYTES))
        with pytest.raises(CannotConnect):
            await Channel.connect("127.0.0.1", server.sockets[0].getsockname()[1], introduction=introduction)
        server.close()
        await _turns(3)

    asyncio.run(run())
    gc.collect()
    assert not [one for one in caplog.records if one.name == "asyncio"]
