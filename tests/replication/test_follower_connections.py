"""Connections between followers and leaders: cut, silent, lying, slow, and with much to carry."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.names import TopicPartition
from klog.protocol import codec, replica_fetch
from klog.protocol.apis import ApiKey
from klog.protocol.replica_fetch import FetchEntry
from klog.replication.follower import FollowerState
from klog.secret import Challenge, Secret
from klog.storage.log_reader import LogReader
from tests.replication.side import NAME, SECRET, Side, append, batch, content, two_sides
from tests.replication.test_follower_throttle import update
from tests.rows import each
from tests.until import until_async as until


async def test_a_leader_that_comes_back_elsewhere_is_found(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await append(led, batch())
        one.server.close()
        await until(lambda: follower.state is FollowerState.WAITING)
        one.restart_server()
        one.incarnation += 1
        led = one.lead(6, isr=(1, 2))
        two.follow(1, 6)
        two.knows(one, two)
        assert await append(led, batch()) is None
        assert content(follower.log) == content(led.log)


async def test_roles_change_back_and_forth(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        for epoch in range(1, 9):
            leader, follower = (one, two) if epoch % 2 else (two, one)
            led = leader.lead(epoch, isr=(1, 2))
            follower.follow(leader.broker_id, epoch)
            for mark in range(3):
                assert await append(led, batch(2, mark=10 * epoch + mark)) is None
            led.append(batch(mark=99))  # that nobody waits for: it may be cut by the next leader
        await until(lambda: one.log().end == two.log().end)
        assert content(one.log()) == content(two.log())


async def test_bytes_that_mean_nothing_end_the_connection_and_nothing_else(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        await append(led, batch())
        head = struct.pack(">hhih", 10017, 0, 1, -1)
        for body in (b"", b"\x09", b"\x01" + bytes(12) + b"\x05", b"\x00\x7f\xff", b"\x01" + bytes(40)):
            frame = struct.pack(">i", len(head + body)) + head + body
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(frame)
            assert await reader.read() == b""  # closed
            writer.close()
        assert await append(led, batch()) is None
        assert content(follower.log) == content(led.log)


OPENED = b"\0\0\0\x10" + struct.pack(">ihhq", 0, 0, 0, 1)


@each(
    "nonsense",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(b"\x7f\xff\xff\xff", id="a length beyond all bounds"),
        pytest.param(OPENED + b"\0\0\0\x05\0\0\0\x63\x00", id="an answer to what was not asked"),
        pytest.param(OPENED + b"\0\0\0\x05\0\0\0\x01\x09", id="an entry of no sort"),
        pytest.param(OPENED + b"\0\0\0\x06\0\0\0\x01\x00\x00", id="half an entry"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
async def test_a_leader_that_talks_nonsense_is_left_and_tried_again(tmp_path: Path, nonsense: bytes) -> None:
    async with two_sides(tmp_path) as (one, two):
        visits = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal visits
            visits += 1
            if nonsense.startswith(OPENED):
                await greet(reader, writer, as_id=1)
            await reader.read(10)
            writer.write(nonsense)
            await reader.read()
            writer.close()

        liar = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = liar.sockets[0].getsockname()[1]
        two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
        follower = two.follow(1, 5)
        await until(lambda: visits >= 2)
        led = one.lead(5, isr=(1, 2))
        two.knows(one, two)
        assert await append(led, batch()) is None
        assert content(follower.log) == content(led.log)
        liar.close()


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, as_id: int, secret: Secret = SECRET
) -> None:
    """What a leader does first: tell its versions, prove that it knows the secret, and believe the follower."""

    async def request() -> tuple[codec.RequestHead, Any]:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        frame = memoryview(bytearray(await reader.readexactly(size)))
        head = codec.read_head(frame)
        return head, codec.decode_body(frame, head)

    head, _ = await request()
    writer.write(codec.encode_response(head, codec.response(ApiKey.API_VERSIONS, 3, error_code=0, api_keys=[])))
    head, asked = await request()
    nonce = bytes(32)
    proof = Challenge(int(asked.broker_id), as_id, bytes(asked.nonce), nonce).answerer_proof(secret)
    answer = codec.response(ApiKey.GREET, 0, error_code=0, nonce=nonce, proof=proof)
    writer.write(codec.encode_response(head, answer))
    head, _ = await request()
    writer.write(codec.encode_response(head, codec.response(ApiKey.PROVE, 0, error_code=0)))


@each(("who", "secret"), [(1, Secret(bytes(32))), (3, SECRET)], ids=["guessed", "passed on"])
async def test_a_leader_without_the_clusters_secret_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, who: int, secret: Secret
) -> None:
    """Nor one that passes another's proof on: a proof says for whom it is."""
    async with two_sides(tmp_path) as (one, two):

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await greet(reader, writer, as_id=who, secret=secret)
            except asyncio.IncompleteReadError:
                pass
            writer.close()

        liar = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = liar.sockets[0].getsockname()[1]
        two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
        follower = two.follow(1, 5)
        await until(lambda: "secret" in caplog.text)
        assert follower.log.end.address == 0
        led = one.lead(9, isr=(1, 2))
        two.knows(one, two)
        follower = two.follow(1, 9)
        assert await append(led, batch()) is None
        assert content(follower.log) == content(led.log)
        liar.close()


async def test_a_follower_without_the_clusters_secret_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(one: Side, two: Side) -> None:
        one.knows(one, two)
        two.knows(one, two)
        led = one.lead(5, isr=(1,))
        await append(led, batch())
        follower = two.follow(1, 5)
        await until(lambda: "secret" in caplog.text)
        # One who does not ask for the leader's proof, and one who has heard another's.
        for proof in (b"", bytes(32), Challenge(3, 2, bytes(32), bytes(32)).asker_proof(SECRET)):
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            greeting = codec.request(ApiKey.GREET, 0, broker_id=2, answerer_id=1, nonce=bytes(32))
            writer.write(codec.encode_request(greeting, 1, "x"))
            writer.write(codec.encode_request(codec.request(ApiKey.PROVE, 0, proof=proof), 2, "x"))
            writer.write(replica_fetch.open_request(one.image.cluster_id, 2, two.incarnation, 1))
            answers = []
            for _ in range(3):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answers.append(await reader.readexactly(size))
            assert codec.decode_response(answers[1], ApiKey.PROVE, 0)[1].error_code.value == 31
            assert replica_fetch.read_opened(memoryview(answers[2])) == (31, "CLUSTER_AUTHORIZATION_FAILED", -1)
            writer.close()
        assert follower.log.end.address == 0

    one, two = Side(tmp_path / "1", 1).start(), Side(tmp_path / "2", 2, secret=Secret(bytes(32))).start()
    try:
        await scene(one, two)
    finally:
        await two.stop()
        await one.stop()


async def test_batches_that_do_not_check_are_not_appended_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_sides(tmp_path) as (one, two):
        other = TopicPartition("t", 1)
        led, sound = one.lead(5, isr=(1,)), one.lead(5, isr=(1, 2), name=other)
        await append(led, batch(5, 100))
        led.log.segments[0].file.write_at(80, b"!!")
        follower = two.follow(1, 5)
        two.follow(1, 5, other)
        assert await append(sound, batch()) is None
        await until(lambda: "CRC" in caplog.text)
        assert follower.log.end.address == 0
        assert await append(sound, batch()) is None


async def test_a_silent_leader_is_given_up_and_connected_to_anew(tmp_path: Path) -> None:
    async with two_sides(tmp_path, replica_socket_timeout_ms="100", replica_fetch_wait_max_ms="10") as (one, two):
        visits = 0

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal visits
            visits += 1
            await reader.read(-1)
            writer.close()

        deaf = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = deaf.sockets[0].getsockname()[1]
        two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
        two.follow(1, 5)
        await until(lambda: visits >= 2)
        deaf.close()


async def test_partitions_in_which_nothing_happens_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sides(tmp_path) as (one, two):
        names = [TopicPartition("t", number) for number in range(200)]
        led = [one.lead(5, isr=(1, 2), name=name) for name in names]
        followers = [two.follow(1, 5, name) for name in names]
        await until(lambda: all(one.state is FollowerState.FETCHING for one in followers))
        named = 0
        read_entries = replica_fetch.read_entries

        def count(frame: memoryview, at: int) -> Iterator[FetchEntry]:
            nonlocal named
            for entry in read_entries(frame, at):
                named += 1
                yield entry

        monkeypatch.setattr("klog.server.handlers.replica_fetch.replica_fetch.read_entries", count)
        for _ in range(20):
            await append(led[17], batch())
        assert named <= 3 * 20  # what it has, what it has flushed
        assert content(followers[17].log) == content(led[17].log)


async def test_a_throttled_partition_comes_slowly_and_others_do_not(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        other = TopicPartition("t", 1)
        for name in (NAME, other):
            for mark in range(100):
                one.log(name).append(batch(1, 10_000, mark), 4)
            one.log(name).flush()  # or nothing would be committed, and everybody in sync
            one.lead(5, name=name, isr=(1,))
        two.fetchers.take_rates(update((NAME, (2,), 1_000_000)))
        began = two.loop.time()
        slow, quick = two.follow(1, 5), two.follow(1, 5, other)
        await until(lambda: quick.log.end == one.log(other).end)
        assert slow.log.end.address < one.log().end.address / 2
        await until(lambda: slow.log.end == one.log().end)
        assert two.loop.time() - began > 0.5  # a megabyte at a megabyte a second, less what came at once
        two.fetchers.take_rates(update((NAME, (), 0)))


async def test_a_throttle_that_is_lifted_lets_all_through_at_once(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        for mark in range(100):
            one.log().append(batch(1, 10_000, mark), 4)
        one.log().flush()
        led = one.lead(5, isr=(1,))
        two.fetchers.take_rates(update((NAME, (2,), 1000)))
        follower = two.follow(1, 5)
        await until(lambda: follower.log.end.address > 0)
        two.fetchers.take_rates(update((NAME, (), 0)))
        began = two.loop.time()
        await until(lambda: follower.log.end == led.log.end)
        assert two.loop.time() - began < 5


async def test_several_connections_share_the_partitions(tmp_path: Path) -> None:
    async with two_sides(tmp_path, num_replica_fetchers="3") as (one, two):
        names = [TopicPartition("t", number) for number in range(20)]
        led = [one.lead(5, isr=(1, 2), name=name) for name in names]
        for name in names:
            two.follow(1, 5, name)
        assert await asyncio.gather(*(append(each, batch()) for each in led)) == [None] * 20
        assert len(one.server.connections) == 3


async def test_who_is_unfollowed_takes_nothing_more(tmp_path: Path) -> None:
    async with two_sides(tmp_path) as (one, two):
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await append(led, batch())
        await until(lambda: follower.log.end == led.log.end)
        await two.fetchers.let_go([NAME])
        before = follower.log.end
        await append(led, batch())
        await asyncio.sleep(0.05)
        assert follower.log.end == before
        await until(lambda: not one.server.connections)
        two.follow(1, 5)
        await until(lambda: two.log().end == led.log.end)


async def dribble(source: asyncio.StreamReader, target: asyncio.StreamWriter, sizes: random.Random) -> None:
    """Pass on what comes, in pieces of any size."""
    try:
        while data := await source.read(sizes.choice((1, 3, 60, 5_000, 70_000))):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


@each("seed", range(3))
async def test_bytes_that_come_in_any_pieces(tmp_path: Path, seed: int) -> None:
    sizes = random.Random(seed)
    async with two_sides(tmp_path) as (one, two):

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", one.port)
            await asyncio.gather(dribble(reader, onward, sizes), dribble(onward_reader, writer, sizes))

        proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
        for mark in range(12):
            one.log().append(batch(1, sizes.choice((10, 400_000)), mark), 4)
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for mark in range(30):
            assert await append(led, batch(1, sizes.choice((10, 3_000, 40_000)), mark)) is None
        assert content(follower.log) == content(led.log)
        proxy.close()


async def test_a_connection_that_breaks_anywhere_costs_nothing(tmp_path: Path) -> None:
    """Cut after so many bytes, again and again: what came whole stays, the rest comes by the next one."""
    async with two_sides(tmp_path) as (one, two):
        allowed = 100

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal allowed
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", one.port)
            there = asyncio.create_task(dribble(reader, onward, random.Random(1)))
            left = allowed
            allowed = allowed * 3 // 2
            while left > 0 and (data := await onward_reader.read(min(left, 5_000))):
                left -= len(data)
                writer.write(data)
                await writer.drain()
            writer.close()
            onward.close()
            await there

        proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
        for mark in range(40):
            one.log().append(batch(1, 5_000, mark), 4)
        led = one.lead(5, isr=(1, 2))
        follower = two.follow(1, 5)
        for mark in range(5):
            assert await append(led, batch(1, 5_000, mark)) is None
        assert content(follower.log) == content(led.log)
        assert allowed > 1000, "it was cut many times"
        proxy.close()


async def test_a_leader_that_moves_while_it_is_being_connected_to(tmp_path: Path) -> None:
    """Nobody answers at the first address, not even with a refusal; the second is gone to at once."""
    async with two_sides(tmp_path) as (one, two):
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            port = deaf.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:  # its queue is full: further attempts hang
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            two.image.brokers = {1: dataclasses.replace(one.entry, port=port, inter_port=port)}
            led = one.lead(5, isr=(1, 2))
            two.follow(1, 5)
            await asyncio.sleep(0.1)
            two.knows(one, two)
            began = two.loop.time()
            assert await append(led, batch()) is None
            assert two.loop.time() - began < 10
            for filler in fillers:
                filler.close()


@each("moves", [1, 5])
async def test_a_leader_that_moves_in_the_same_turn(tmp_path: Path, moves: int) -> None:
    async with two_sides(tmp_path, replica_fetch_backoff_ms="100") as (one, two):
        led = one.lead(5, isr=(1, 2))
        two.image.brokers = {1: dataclasses.replace(one.entry, port=1, inter_port=1)}
        two.follow(1, 5)
        for _ in range(moves):
            two.knows(one, two)
            await asyncio.sleep(0)
            two.image.brokers = {1: dataclasses.replace(one.entry, port=1, inter_port=1)}
            two.fetchers.brokers_changed()
            await asyncio.sleep(0)
        two.knows(one, two)
        assert await append(led, batch()) is None


async def test_a_leader_waits_for_so_many_bytes(tmp_path: Path) -> None:
    async with two_sides(tmp_path, replica_fetch_min_bytes="50000", replica_fetch_wait_max_ms="60000") as (one, two):
        led = one.lead(5, isr=(1,))
        follower = two.follow(1, 5)
        await until(lambda: follower.state is FollowerState.FETCHING)
        await append(led, batch(1, 100))
        await asyncio.sleep(0.1)
        assert follower.log.end.address == 0
        await append(led, batch(1, 60_000))
        await until(lambda: follower.log.end == led.log.end)


async def test_a_leader_waits_no_longer_than_told(tmp_path: Path) -> None:
    async with two_sides(tmp_path, replica_fetch_min_bytes="50000", replica_fetch_wait_max_ms="200") as (one, two):
        led = one.lead(5, isr=(1, 2))
        two.follow(1, 5)
        assert await append(led, batch(1, 100)) is None


async def test_who_is_in_sync_does_not_wait_for_a_cold_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading ahead for a replica far behind takes seconds; acknowledgements over the same connection do not."""
    may_read = threading.Event()
    monkeypatch.setattr(LogReader, "warm", lambda self, ranges: may_read.wait(30))
    async with two_sides(tmp_path) as (one, two):
        other = TopicPartition("t", 1)
        for mark in range(60):
            one.log().append(batch(1, 700_000, mark), 4)
        far = one.lead(5, isr=(1,))
        led = one.lead(5, isr=(1, 2), name=other)
        follower = two.follow(1, 5)
        two.follow(1, 5, other)
        for mark in range(20):
            assert await append(led, batch(mark=mark)) is None
        assert follower.state is FollowerState.FETCHING, "it knows that it agrees"
        assert follower.log.end.address == 0
        may_read.set()
        await until(lambda: follower.log.end == far.log.end)
        assert content(follower.log) == content(far.log)
