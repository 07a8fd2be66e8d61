"""A crowd from one address: connections that send one request again and again, as fast as they can, and read nothing.

Run as ``python -m tests.server.crowd HOST:PORT CONNECTIONS SECONDS REQUEST``, the request in hexadecimal; a process of
its own, so that it takes no turn from the client that is measured beside it. It prints the bytes that it sent.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time


def main(address: str, connections: int, seconds: float, request: bytes) -> int:
    """Bytes sent."""
    host, _, port = address.rpartition(":")
    sent = 0
    with contextlib.ExitStack() as stack:
        at = {}
        for _ in range(connections):
            one = stack.enter_context(socket.create_connection((host, int(port)), 30))
            one.setblocking(False)
            at[one] = 0
        piece = request * (1 + 65536 // len(request))
        until_s = time.monotonic() + seconds
        while at and time.monotonic() < until_s:
            for one in select.select([], list(at), [], 0.1)[1]:
                try:
                    count = one.send(piece[at[one] :])
                except BlockingIOError:
                    continue
                except OSError:
                    del at[one]
                    continue
                at[one] = (at[one] + count) % len(piece)
                sent += count
    return sent


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), bytes.fromhex(sys.argv[4])))
