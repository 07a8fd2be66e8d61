"""Checks whether a ZooKeeper serves, without a session, by its word ``srvr``."""

from __future__ import annotations

import ssl
from typing import Final

from klog.clock import Clock
from klog.coordination.connect_string import ConnectString, four_letter_word, last_change_in, mode_in
from klog.names import host_port

PROBE_TIMEOUT_S: Final = 1.0
PROBE_PAUSE_S: Final = 0.02


def await_serving(
    address: ConnectString, context: ssl.SSLContext | None, clock: Clock, deadline_s: float, *, patient: bool
) -> tuple[str, str]:
    """The last error, "" once a server serves; and its answer. Not ``patient``: every server is asked once."""
    last = "it was not asked"
    while True:
        for host, port in address.servers:
            wait_s = min(PROBE_TIMEOUT_S, deadline_s - clock.monotonic_s())
            if wait_s <= 0:
                return last, ""
            try:
                answer = four_letter_word(host, port, b"srvr", wait_s, context)
            except TimeoutError:
                last = f"{host_port(host, port)} does not answer"
                continue
            except OSError as error:
                last = f"{host_port(host, port)}: {_reason(error)}"
                continue
            # A server that does not allow the word, or closes without an answer, may serve all the same.
            if mode_in(answer) or "whitelist" in answer:
                return "", answer
            last = f"{host_port(host, port)}: {answer.strip()[:120] or 'closed the connection'}"
        if not patient:
            return last, ""
        clock.sleep(min(PROBE_PAUSE_S, max(0.0, deadline_s - clock.monotonic_s())))


def lost_data(address: ConnectString, context: ssl.SSLContext | None, seen: int) -> tuple[str, int, int] | None:
    """Host, port and last zxid of a leading server that knows less than a client has ``seen``; None without one."""
    for host, port in address.servers:
        try:
            answer = four_letter_word(host, port, b"srvr", PROBE_TIMEOUT_S, context)
        except OSError:
            continue
        last = last_change_in(answer)
        if mode_in(answer) in ("standalone", "leader") and last is not None and last < seen:
            return host, port, last
    return None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS as it should: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return error.strerror or str(error)
