"""The client's side of a connection to a broker, without its socket: requests numbered, answers matched and decoded.

A driver writes what `encode` returns, reads frames of the size that `frame_bytes` finds, and gives them to `decode`:
`klog.net.channel` on an event loop, `klog.client.blocking` in a thread.
"""

from __future__ import annotations

import functools
import itertools
import secrets
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from klog.errors import CannotConnect, KlogError, MalformedRequest, TimedOut, UnsupportedVersion
from klog.net.client_tls import hint_after
from klog.protocol import codec, klog_apis
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.versions import WRITTEN_BY_HAND
from klog.security.client_security import ClientSecurity

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""A larger answer is malformed; Kafka's own clients stop at 100 to 2,000 MB."""
FIRST_FRAMES_BYTES_MAX: Final = 64 * 1024
"""Of the answers before a connection is open: versions, login, introduction."""

SIZE_BYTES: Final = 4
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">4xhhi")
"""Of a request's frame: length, key, version, correlation id."""
_UNSUPPORTED_VERSION: Final = b"\x00\x23"


class NoAnswer(CannotConnect):
    """Connected, but the first request got no answer in time."""


class Sent(NamedTuple):
    """A request without an answer yet. ``number``: its correlation id."""

    number: int
    key: int
    version: int

    @property
    def name(self) -> str:
        return api_name(self.key)


@functools.cache
def _correlation_ids() -> Iterator[int]:
    return itertools.count(secrets.randbelow(2**30))


def next_number() -> int:
    """A correlation id, unique in this process and very likely among processes: a client recognises its own acts by
    it."""
    return next(_correlation_ids()) & 0x7FFF_FFFF


class Conversation:
    """One connection's. ``address`` is the broker's, for errors."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        """Key -> (lowest, highest) version that the broker serves, from ApiVersions."""
        self.frame_bytes_max = FIRST_FRAMES_BYTES_MAX
        """The driver raises it when the connection is open."""
        self._client_id = client_id
        self._unanswered: dict[int, Sent | None] = {}
        """By correlation id; None where the answer is not waited for any more."""

    def version_for(self, key: int, highest: int, lowest: int = 0) -> int:
        """The highest version that both sides speak. Raises UnsupportedVersion if they share none."""
        low, high = self.versions.get(key, (1, 0))
        version = min(high, highest)
        if version < max(low, lowest) or low > high:
            raise UnsupportedVersion(
                f"{self.address} does not serve {api_name(key)} in versions {lowest} to {highest}"
                + (f" (it has {low} to {high})" if low <= high else "")
            )
        return version

    def encode(self, entity: Any, client_id: str | None = None) -> tuple[Sent, bytes]:
        """A request, and its frame with the length in front.

        ``entity``: or a frame written by hand (ReplicaFetch). ``client_id``: default is the connection's.
        """
        if isinstance(entity, bytes):
            key, version, number = _HEAD.unpack_from(entity)
            frame = entity
        else:
            key, version, number = int(entity.__api_key__), int(entity.__version__), next_number()
            frame = codec.encode_request(entity, number, client_id or self._client_id)
        sent = self._unanswered[number] = Sent(number, key, version)
        return sent, frame

    def forget(self, sent: Sent) -> None:
        """Its answer is not waited for any more."""
        if sent.number in self._unanswered:
            self._unanswered[sent.number] = None

    def frame_bytes(self, size: bytes | memoryview) -> int:
        """The size of a frame, from its first `SIZE_BYTES`. Raises MalformedRequest for one beyond all bounds."""
        found: int = _SIZE.unpack(size)[0]
        if not SIZE_BYTES <= found <= self.frame_bytes_max:
            raise MalformedRequest(f"{self.address}: an answer claims {found} bytes")
        return found

    def decode(self, frame: bytes | memoryview) -> tuple[Sent, Any | KlogError] | None:
        """The request that a frame answers, and its entity, or an error where that does not parse; the frame itself if
        the request was written by hand. None for an answer that is not waited for. Raises MalformedRequest."""
        (number,) = _SIZE.unpack_from(frame)
        if number not in self._unanswered:
            raise MalformedRequest(f"{self.address}: answer {number} to a request that was not sent")
        sent = self._unanswered.pop(number)
        if sent is None:
            return None
        _, key, version = sent
        if key in WRITTEN_BY_HAND:
            return sent, memoryview(frame)
        if key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # the form of a refusal, whatever version was asked (KIP-511)
        try:
            return sent, codec.decode_response(frame, key, version)[1]
        except MalformedRequest as error:
            return sent, error.bare()

    def learn_versions(self, asked: int, answer: Any) -> bool:
        """Take the broker's versions from its answer to ApiVersions, asked in this version; False to ask in the next of
        `VERSIONS_ASKED`. Raises UnsupportedVersion."""
        is_refused = answer.error_code.value != 0
        if not is_refused:
            self.versions = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
        elif asked == VERSIONS_ASKED[-1]:
            raise UnsupportedVersion(f"{self.address} refuses ApiVersions with error {answer.error_code.name}")
        return not is_refused

    def not_a_broker(self, error: KlogError, security: ClientSecurity) -> CannotConnect:
        """The error of a connection whose first requests were not answered as by a broker."""
        kind = NoAnswer if isinstance(error, TimedOut) else CannotConnect
        return kind(
            f"{self.address}: something listens there, but it does not answer as a broker ({error.message})",
            hint=hint_after(error, security),
        )


NOT_A_BROKER: Final = (TimedOut, MalformedRequest, UnsupportedVersion, CannotConnect)
"""Errors of a connection's first requests that mean `Conversation.not_a_broker`."""


VERSIONS_ASKED: Final = (3, 0)
"""Of ApiVersions: KIP-511's, and the first for a broker that refuses it."""


def versions_request(version: int) -> Any:
    return codec.request(
        ApiKey.API_VERSIONS, version, client_software_name=klog_apis.SOFTWARE_NAME, client_software_version="1"
    )
