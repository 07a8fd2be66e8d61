"""Serving a file's bytes to a socket by sendfile, or by reading and sending: one server, in a process of its own.

    python -m bench.paper.sending FILE sendfile|read SECONDS

Prints as JSON: bytes sent, seconds, its own processor seconds, and how often each byte was copied by the processor
between the page cache and the socket.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
from pathlib import Path

PIECE_BYTES = 1 << 20


def _discard(connection: socket.socket) -> None:
    """The other end: the kernel throws its bytes away, so that they cost as little as can be."""
    buffer = bytearray(PIECE_BYTES)
    while connection.recv_into(buffer, PIECE_BYTES, socket.MSG_TRUNC):
        pass


def serve(path: Path, how: str, seconds: float) -> dict[str, float]:
    """The file again and again, for so long."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        with socket.create_connection(listener.getsockname()) as connection:
            _discard(connection)
        os._exit(0)
    connection, _ = listener.accept()
    sent = copied = 0
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file, connection:
        buffer = memoryview(bytearray(PIECE_BYTES))
        began, cpu_before = time.perf_counter(), _cpu_s()
        while time.perf_counter() - began < seconds:
            at = 0
            while at < size:
                if how == "sendfile":
                    moved = os.sendfile(connection.fileno(), file.fileno(), at, PIECE_BYTES)
                else:
                    moved = os.preadv(file.fileno(), [buffer], at)
                    connection.sendall(buffer[:moved])
                    copied += 2 * moved  # into the buffer, and out of it
                if not moved:
                    break
                at += moved
            sent += at
        elapsed, cpu_s = time.perf_counter() - began, _cpu_s() - cpu_before
    os.waitpid(pid, 0)
    return {"bytes": sent, "seconds": elapsed, "cpu_s": cpu_s, "copies": copied / sent if sent else 0}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    assert threading.active_count() == 1  # it forks
    print(json.dumps(serve(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))))
