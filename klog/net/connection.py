"""A client's connection on the broker's side: frames in, answers out in the same order.

Strategy
    A non-blocking socket, registered with the loop by `add_reader` and `add_writer`. asyncio's transports copy what
    they receive and cannot send files between two writes; every message would pay for both.

    In. All connections of a loop receive into one scratch buffer (`shared`). Whole frames are handled where they lie.
    Only the start of an unfinished frame is copied, into a buffer that receives the rest. So an idle connection holds
    no memory, and a batch of a megabyte is copied once at most.

    Out. Each frame gets a `Reply`, a place in the queue of answers. A reply may be filled at once or much later (a
    flush, a long poll); answers go out in the order of the requests, as the protocol demands. An answer is a list of
    parts: bytes, and ranges of files that are sent by sendfile. Small answers that are ready together leave in one
    system call.

Rules
    * The frame given to `on_frame` is a writable view of a buffer, valid until `on_frame` returns.
    * `on_frame` raises PeerError for invalid bytes: the connection closes, and the log names the peer.

Limits
    * With `SocketLimits.replies_max` requests unanswered or unsent, or `WAITING_BYTES_MAX` of unsent answers, the
      broker reads nothing more from the connection.
    * A peer that does not take its answers is disconnected: see `unsent`.
    * Long requests wait for one another, and let others pass: see `turns`.
    * Unfinished requests of all connections are bounded together, and each must make progress: see `memory_pool`,
      `overdue`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from klog.errors import MalformedRequest, PeerError
from klog.net.memory_pool import PACE, PACE_FULL, TINY_BYTES
from klog.net.rejected_peers import WrongProtocol
from klog.net.shared import SPARE_BYTES_MIN, Shared, SocketLimits
from klog.net.turns import EXPENSIVE_S, SLICE_S
from klog.security.principal import ANONYMOUS

log = logging.getLogger(__name__)

MEMORY_WAIT_S = 30.0
"""How long a request waits for memory. By then its client has given up."""

IOVECS_MAX = 256
"""Parts in one sendmsg; Linux allows 1,024."""

WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Unsent bytes of answers, without ranges of files, beyond which nothing more is read from a peer. One answer may be
larger."""

MANY_BYTES = 64 * 1024
"""Bytes per receive where many small requests come, and the last ones did not use up their slice of time."""
LARGE_BYTES = 4 * 1024
"""After a request of this size the connection receives as much as has come."""

SENDFILE_BYTES_A_TURN = 4 * 1024 * 1024
"""Bytes sent to one peer before the loop serves the others."""

TLS_RECORD = 0x16
TLS_MAJOR = 0x03
"""The first bytes of every TLS connection; as a frame's length they mean 369 MB."""

_SIZE = struct.Struct(">i")
_TCP_ESTABLISHED = 1
"""A state of TCP: the first byte of Linux's tcp_info."""


class FileRange(Protocol):
    """A part of an answer: a range of a file (`klog.storage.log.FileRange` is one)."""

    @property
    def file(self) -> HasFileno: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Socket(Protocol):
    """A connected, non-blocking socket: raises BlockingIOError instead of waiting."""

    @property
    def family(self) -> int: ...
    def fileno(self) -> int: ...
    def recv_into(self, target: memoryview, /) -> int: ...
    def send(self, data: bytes | bytearray | memoryview, /) -> int: ...
    def sendmsg(self, parts: list[bytes | bytearray | memoryview], /) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...
    def getsockopt(self, level: int, name: int, size: int, /) -> bytes: ...
    def close(self) -> None: ...


Part = bytes | bytearray | FileRange
OnFrame = Callable[["Connection", memoryview, "Reply"], None]


class Reply:
    """A request's place in the queue of answers. Filled once, by `send` or `nothing`. Event loop only."""

    __slots__ = ("_connection", "parts")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.parts: Sequence[Part] | None = None

    def send(self, *parts: Part) -> None:
        """Fill with the answer, its length in front."""
        self.parts = parts
        self._connection.reply_ready(self)

    def nothing(self) -> None:
        """Fill without an answer (produce with acks=0)."""
        self.send()

    @property
    def wanted(self) -> bool:
        """Whether the connection is still open."""
        return not self._connection.closed


class Connection:
    """A peer's socket. Event loop only. ``peer`` is ADDRESS:PORT."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: Socket,
        peer: str,
        *,
        shared: Shared,
        limits: SocketLimits,
        on_frame: OnFrame,
        on_sent: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.closed = False
        self.client_id: str | None = None
        """Of its first request that has one; truncated if long."""
        self.reads: tuple[str, ...] = ()
        """Topics of its last Fetch."""
        self.writes: str | None = None
        """The topic of its last Produce."""
        self.software: tuple[str, str] | None = None
        """The client's name and version (KIP-511), from ApiVersions."""
        self.challenge: object = None
        """The challenge sent to a peer that claims to be a broker, until it answers."""
        self.listener = ""
        """The name of its listener."""
        self.due_s = math.inf
        """Deadline of authentication, by the loop's clock."""
        self.sasl: object = None
        """State of the SASL exchange, on a listener that demands one."""
        self.principal = ANONYMOUS
        """The authenticated principal; permissions are checked for it."""
        self.is_broker = False
        """Whether the peer has proved that it knows the cluster's secret (rule R10)."""
        self.session: object = None
        """State that a handler keeps per connection (ReplicaFetch)."""
        self.states: dict[object, Any] = {}
        """State that parts of the broker keep per connection, by the part."""
        self.at_end: set[Callable[[], object]] = set()
        """Called when the connection closes."""
        self.held: Callable[[], object] | None = None
        """Sends a delayed answer when the next request comes; answers go out in order."""
        self.last_active_s = loop.time()
        """When the peer last sent or took bytes."""
        self.received_s = self.last_active_s
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._sendfile: Callable[[int, int, int, int], int] = os.sendfile
        self._shared = shared
        self.rejected_peers = shared.rejected_peers
        self._memory_pool = shared.memory_pool
        self.turns = shared.turns
        """For work that goes on after the handler has returned."""
        self._is_expensive = False
        """The last requests took `EXPENSIVE_S` or longer, or more than their slice."""
        self._waits_for_turn = False
        self._frame_bytes_max = limits.frame_bytes_max
        self._replies_max = limits.replies_max
        self._on_frame = on_frame
        self._on_sent = on_sent
        self._on_closed = on_closed
        self._buffer: memoryview | None = None
        self._partial: memoryview | None = None
        """An unfinished frame with its length in front: the part of `_buffer` that it will fill."""
        self._partial_bytes = 0
        self._marks = [(0.0, 0), (0.0, 0)]
        """For `PACE` and `PACE_FULL`: the last time of measuring, and the bytes received by then."""
        self._waits_since_s: float | None = None
        """When it began to wait for memory for an unfinished frame; nothing is read meanwhile."""
        self._sends_much = self._sends_many = False
        """The last requests were large, or many and handled quickly: larger receives. Otherwise receives are small, so
        that few requests queue here when they come faster than they are answered."""
        self._backlog: memoryview | None = None
        """Received bytes that are not handled yet."""
        self._replies: deque[Reply] = deque()
        self._out: deque[Part] = deque()
        """Parts to send, in order; the first may have been sent in part (`_out_sent`)."""
        self._out_sent = 0
        self.waiting_bytes = 0
        """Unsent bytes of answers, without ranges of files."""
        self.taken_bytes = 0
        """Bytes of answers sent since the connection began, with ranges of files."""
        self.sending: list[Callable[[Collection[Reply]], bool]] = []
        """Called with the unfilled replies whenever the queue of parts is empty; kept until it returns True."""
        self._write_scheduled = False
        self._handling = False
        """Whether requests are being handled; their answers are sent together afterwards."""
        self._reading = True
        self._paused = False
        self._muted: asyncio.TimerHandle | None = None
        self._muted_until_s = 0.0
        self._writing = False
        sock.setblocking(False)
        if limits.send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        loop.add_reader(self._fd, self._on_readable)

    # --- in -----------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if (self._is_expensive or self.turns.is_over) and not self.is_broker:
            self._wait_for_turn()
        else:
            self._receive()

    def _wait_for_turn(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._stop_reading()
            self.turns.call_in_turn(self.address, self.go_on, is_expensive=self._is_expensive, is_broker=self.is_broker)

    def go_on(self) -> None:
        """Called by `Turns`: handle what has come."""
        self._waits_for_turn = self._is_expensive = False
        if self.closed:
            return
        was_left = self._backlog is not None
        self._read_on(self._replies_max - 1)  # it had stopped for its turn, not for too many answers
        if self._reading and not was_left and not self.closed:
            self._receive()

    def _receive(self) -> None:
        partial = self._partial
        if partial is not None:
            target = partial[self._partial_bytes :]
        else:
            target = self._shared.scratch
            if self._memory_pool.is_low:
                target = target[:TINY_BYTES]
            elif not self._sends_much:
                target = target[: MANY_BYTES if self._sends_many else TINY_BYTES]
        try:
            received = self._sock.recv_into(target)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error.strerror or error}")
            return
        if received == 0:
            self.close(None if partial is None else f"it ended {self._partial_bytes} bytes into a request")
            return
        self.last_active_s = self.received_s = self._loop.time()
        if partial is None:
            self._guarded(self._take, target[:received])
            self._sends_many = received >= TINY_BYTES and not self._waits_for_turn
        else:
            self._partial_bytes += received
            if self._partial_bytes == len(partial):
                self._guarded(self._continue, partial)

    def _guarded(self, take: Callable[[memoryview], None], data: memoryview) -> None:
        """Handle bytes. An error closes this connection and no other."""
        self._handling = True
        began_s = self._loop.time()
        try:
            take(data)
        except WrongProtocol as error:
            self._shared.rejected_peers.log(self.peer, error.message)
            self.close(None)
        except PeerError as error:
            log.warning("closing the connection of %s: %s", self.peer, error.message, extra={"peer": self.peer})
            self.close(None)
        except Exception:
            log.exception("closing the connection of %s: internal error", self.peer, extra={"peer": self.peer})
            self.close(None)
        finally:
            self._handling = False
        self._shared.on_handed_on()
        took_s = self._loop.time() - began_s
        self._is_expensive = took_s >= EXPENSIVE_S
        self.turns.spent(took_s)
        if not self._writing and self._replies and self._replies[0].parts is not None:
            self._pump()

    def _take(self, data: memoryview) -> None:
        """Handle every whole frame in ``data``; keep the unfinished one, and the rest when reading stops."""
        at, end = 0, len(data)
        until_s = self._loop.time() + (SLICE_S if self.is_broker else self.turns.slice_s)
        sends_much = self._sends_much = False
        while end - at >= 4:
            if at and self._loop.time() >= until_s:
                self._is_expensive = True
                self._wait_for_turn()
            if not self._reading:
                self._backlog = memoryview(bytearray(data[at:]))
                self._memory_pool.charge(self, end - at)
                return
            size = self._frame_size(data, at)
            if size > LARGE_BYTES:
                sends_much = True
            frame_end = at + 4 + size
            if frame_end > end:
                self._keep(data[at:], 4 + size)
                break
            self._hand_on(data[at + 4 : frame_end])
            if self.closed:
                return
            at = frame_end
        else:
            if at < end:
                self._keep(data[at:], 4)
        self._sends_much = sends_much

    def _continue(self, partial: memoryview) -> None:
        """Go on with an unfinished frame whose buffer is full: the length is known, a larger buffer is due, or it is
        whole."""
        wanted = 4 + self._frame_size(partial, 0)
        if len(partial) < wanted:
            self._keep(partial, wanted)
            return
        buffer, self._buffer, self._partial, self._partial_bytes = self._buffer, None, None, 0
        self._hand_on(partial[4:])
        if not self._paused:  # else `pause_reading` has copied it
            self._memory_pool.release(self)
        assert buffer is not None
        self._shared.give_back(buffer)

    def _keep(self, start: memoryview, frame_bytes: int) -> None:
        """Start or enlarge the buffer of an unfinished frame; wait where there is no memory for it.

        The buffer doubles with what has come, so that a false length costs its sender as much as us.
        """
        have = len(start)
        if self._partial is None:
            self._marks = [(self.last_active_s, 0)] * 2
        if frame_bytes > 4:
            size = min(frame_bytes, max(2 * have, SPARE_BYTES_MIN if have > TINY_BYTES else TINY_BYTES))
            if not self._memory_pool.try_allocate(self, size, frame_bytes, is_of_broker=self.is_broker):
                self._wait_for_memory(start)
                return
            buffer = self._shared.take(frame_bytes, size)
        else:
            buffer = memoryview(bytearray(4))
        buffer[:have] = start
        if self._buffer is not None:
            self._shared.give_back(self._buffer)
        self._buffer, self._partial, self._partial_bytes = buffer, buffer[:frame_bytes], have

    def _wait_for_memory(self, start: memoryview) -> None:
        if self._partial is None:
            self._buffer = self._partial = memoryview(bytearray(start))
            self._partial_bytes = len(start)
            self._memory_pool.charge(self, len(start))
        self._waits_since_s = self._loop.time()
        self._stop_reading()

    def memory_freed(self) -> None:
        """Called by `MemoryPool`: ask again."""
        since_s, partial = self._waits_since_s, self._partial
        if self.closed or since_s is None or partial is None:
            return
        self._waits_since_s = None
        self._guarded(self._continue, partial)
        if self._waits_for_memory():  # in vain
            self._waits_since_s = since_s
        elif not self.closed:
            self._read_on()

    def _waits_for_memory(self) -> bool:
        return self._waits_since_s is not None

    def overdue(self, now_s: float) -> str | None:
        """Why to close the connection, where an unfinished request comes too slowly; else None. Called every second."""
        if self._waits_since_s is not None:
            waited_s = now_s - self._waits_since_s
            if waited_s > MEMORY_WAIT_S:
                return f"for {waited_s:.0f} s there was no room for the rest of a request (queued.max.request.bytes)"
        if self._partial is None:
            return None
        for index, pace in enumerate((PACE, PACE_FULL)):
            since_s, had = self._marks[index]
            if not self._reading or (pace is not PACE and (self.is_broker or not self._memory_pool.is_waited_for)):
                self._marks[index] = now_s, self._partial_bytes
            elif now_s - since_s >= pace.seconds:
                came = self._partial_bytes - had
                if came < pace.bytes:
                    others = ", and others wait for room" if pace is PACE_FULL else ""
                    return f"{came} bytes of an unfinished request came in {now_s - since_s:.0f} s{others}"
                self._marks[index] = now_s, self._partial_bytes
        return None

    def _frame_size(self, data: memoryview, at: int) -> int:
        size: int = _SIZE.unpack_from(data, at)[0]
        if not 0 < size <= self._frame_bytes_max:
            if data[at] == TLS_RECORD and data[at + 1] == TLS_MAJOR:
                raise WrongProtocol("these bytes are TLS, and this listener is a plain one")
            raise MalformedRequest(
                f"a request claims {size} bytes; 1 to {self._frame_bytes_max} (socket.request.max.bytes) are allowed"
            )
        return size

    def _hand_on(self, frame: memoryview) -> None:
        if self.held is not None:
            held, self.held = self.held, None
            held()
        reply = Reply(self)
        self._replies.append(reply)
        self._on_frame(self, frame, reply)
        if len(self._replies) >= self._replies_max:
            self._stop_reading()

    def limit_frames(self, bytes_max: int) -> None:
        """Lower the maximum size of requests from now on."""
        self._frame_bytes_max = bytes_max

    def hand_to(self, on_frame: OnFrame) -> None:
        """Set the receiver of the next requests."""
        self._on_frame = on_frame

    def turn_away(self) -> None:
        """Stop reading, and close the connection when its answers are sent."""
        self._paused = True
        self._stop_reading()
        self.sending.append(self._close_soon)

    def _close_soon(self, waiting: Collection[Reply]) -> bool:
        if waiting:
            return False
        self._loop.call_soon(self.close, None)
        return True

    def pause_reading(self, frame_bytes: int) -> None:
        """Handle no request until `resume_reading`.

        ``frame_bytes``: size of the current request, of which the caller keeps a copy; charged to the memory pool.
        """
        self._paused = True
        self._memory_pool.charge(self, max(frame_bytes - self._memory_pool.held(self), 0))
        self._stop_reading()

    def resume_reading(self) -> None:
        """Go on, first with what was received meanwhile."""
        self._paused = False
        if self._backlog is None:
            self._memory_pool.release(self)
        if not self.closed:
            self._read_on()

    def mute(self, seconds: float) -> None:
        """Read nothing from the peer for ``seconds`` (KIP-219), never shorter than before; its answers go out."""
        self._muted_until_s = max(self._muted_until_s, self._loop.time() + seconds)
        if self._muted is None and not self.closed:
            self._muted = self._loop.call_at(self._muted_until_s, self._unmute)
        self._stop_reading()

    def _unmute(self) -> None:
        if self._loop.time() < self._muted_until_s:  # it was extended
            self._muted = self._loop.call_at(self._muted_until_s, self._unmute)
            return
        self._muted = None
        self._read_on()

    def _stop_reading(self) -> None:
        if self._reading and not self.closed:
            self._reading = False
            self._loop.remove_reader(self._fd)

    # --- out ----------------------------------------------------------------------------------------------------------

    def reply_ready(self, reply: Reply) -> None:
        """A reply is filled. Ready answers are sent together at the end of this turn of the loop."""
        for part in reply.parts or ():
            if isinstance(part, (bytes, bytearray)):
                self.waiting_bytes += len(part)
        if self.waiting_bytes > WAITING_BYTES_MAX:
            self._stop_reading()
        if self._write_scheduled or self._handling or self.closed or self._replies[0] is not reply:
            return
        self._write_scheduled = True
        if not self._shared.is_ready(self.send_ready):
            self._loop.call_soon(self.send_ready)

    async def taken(self) -> None:
        """Wait until all answers that are ready now are sent, or the connection is closed."""
        done: asyncio.Future[None] = self._loop.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(None)

        def is_sent(_: Collection[Reply]) -> bool:
            end()
            return True

        if self.closed:
            return
        self.sending.append(is_sent)
        self.at_end.add(end)
        try:
            await done
        finally:
            self.at_end.discard(end)

    def send_ready(self) -> None:
        """Send the answers that are ready, unless the socket is full."""
        self._write_scheduled = False
        if not self.closed and not self._writing:
            self._pump()

    def _pump(self) -> None:
        """Send until the socket is full, all is sent, or `SENDFILE_BYTES_A_TURN` are used up."""
        replies, out = self._replies, self._out
        budget = SENDFILE_BYTES_A_TURN
        try:
            while budget > 0:
                while replies and (parts := replies[0].parts) is not None and len(out) < IOVECS_MAX:
                    out.extend(parts)
                    replies.popleft()
                if not out:
                    break
                part = out[0]
                budget -= self._send_bytes() if isinstance(part, bytes | bytearray) else self._send_range(part)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"send failed: {error.strerror or error}")
            return
        if self.sending and not out:
            self.sending = [one for one in self.sending if not one(replies)]
        more = bool(out) or (bool(replies) and replies[0].parts is not None)
        if more and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._pump)
        elif not more and self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
            self._on_sent(self)
        self._read_on()

    def _read_on(self, replies_max: int | None = None) -> None:
        """Read again unless reading is paused, more than ``replies_max`` replies wait (default: half the maximum), or
        too many bytes of answers."""
        most = self._replies_max // 2 if replies_max is None else replies_max
        few_wait = len(self._replies) <= most and self.waiting_bytes <= WAITING_BYTES_MAX // 2
        can_read = not (self._paused or self._muted or self._waits_since_s is not None or self._waits_for_turn)
        if not self._reading and few_wait and can_read:
            if self._backlog is not None and (self._is_expensive or self.turns.is_over):
                self._wait_for_turn()
                return
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            backlog, self._backlog = self._backlog, None
            if backlog is not None:
                self._memory_pool.release(self)
                self._guarded(self._take, backlog)

    def _send_bytes(self) -> int:
        """Send the bytes at the head of the queue in one call; returns how many were sent."""
        run: list[bytes | bytearray | memoryview] = []
        for part in self._out:
            if len(run) == IOVECS_MAX or not isinstance(part, bytes | bytearray):
                break
            run.append(part)
        before = self._out_sent
        if before:
            run[0] = memoryview(run[0])[before:]
        sent = self._sock.send(run[0]) if len(run) == 1 else self._sock.sendmsg(run)
        self.last_active_s = self._loop.time()
        self.taken_bytes += sent
        left = sent
        for piece in run:
            if left < len(piece):
                self._out_sent = before + left
                return sent
            left -= len(piece)
            self.waiting_bytes -= before + len(piece)
            before = 0
            self._out.popleft()
        self._out_sent = 0
        return sent

    def _send_range(self, part: FileRange) -> int:
        left = part.size - self._out_sent
        sent = self._sendfile(self._fd, part.file.fileno(), part.position + self._out_sent, left)
        if sent == 0:
            raise OSError(f"the file ended {left} bytes before the range that was promised")
        self.last_active_s = self._loop.time()
        self.taken_bytes += sent
        if sent == left:
            self._out.popleft()
            self._out_sent = 0
        else:
            self._out_sent += sent
        return sent

    # --- end ----------------------------------------------------------------------------------------------------------

    @property
    def waits_to_send(self) -> bool:
        """Whether answers wait for the peer to take them."""
        return self._writing

    @property
    def address(self) -> str:
        """The peer's host, by which connections are counted and turns are given."""
        return self.peer.rpartition(":")[0]

    @property
    def idle(self) -> bool:
        """Whether no request and no answer is under way."""
        return not self._replies and not self._out

    def is_abandoned(self) -> bool:
        """Whether the peer has closed a connection that is not being read."""
        if self._reading or self._sock.family == socket.AF_UNIX:
            return False
        return self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED

    def close(self, reason: str | None) -> None:
        """Close the connection and drop unsent answers. Replies filled later are ignored."""
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            log.info("connection of %s closed: %s", self.peer, reason, extra={"peer": self.peer})
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()
        self._out.clear()
        self._replies.clear()
        self._buffer = self._partial = self._backlog = None
        if self._muted is not None:
            self._muted.cancel()
        self._memory_pool.release(self)
        at_end, self.at_end = self.at_end, set()
        for act in at_end:
            act()
        self._on_closed(self)


@contextmanager
def while_open(connection: Connection | None) -> Iterator[None]:
    """Cancel the task that is within when the connection ends. None: the broker's own, which has no end."""
    if connection is None:
        yield
        return
    task = asyncio.current_task()
    assert task is not None
    if connection.closed:
        task.cancel()
    cancel = partial(task.cancel)  # an object of its own, should one be within another
    connection.at_end.add(cancel)
    try:
        yield
    finally:
        connection.at_end.discard(cancel)
