"""AlterUserScramCredentials: v0 (KIP-554): sets users' SCRAM credentials, and takes them away.

Behaviour
    The client stretches the password; what it sends is what RFC 5802 calls the salted password, of which the broker
    keeps what it needs for checking. Each user is answered by itself: RESOURCE_NOT_FOUND where there is nothing to take
    away, DUPLICATE_RESOURCE where one credential is named twice, UNACCEPTABLE_CREDENTIAL for an empty name or
    iterations out of bounds, UNSUPPORTED_SASL_MECHANISM for a mechanism that is not known. Nothing is changed of a user
    with an error.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from klog.coordination.scram_credentials import is_possible
from klog.protocol.apis import ApiKey
from klog.security.errors import DuplicateResource, ResourceNotFound, UnacceptableCredential, UnsupportedSaslMechanism
from klog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, NAME_BYTES_MAX, ScramCredential, ScramMechanism
from klog.server.dispatch import Answer, Request, handles, outcome
from klog.server.parts import Parts
from klog.server.zookeeper_admission import Kind


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    by_user: dict[str, list[Any]] = defaultdict(list)
    for one in (*request.entity.deletions, *request.entity.upsertions):
        by_user[one.name].append(one)

    async def change(name: str, asked: list[Any]) -> None:
        wanted = _changes(name, asked)
        if any(wanted.values()):
            parts.zookeeper_admission.new(Kind.RULES)
        if not await parts.credentials.write(name, wanted, request.actor):
            raise ResourceNotFound(f"user {name!r} has no such credential")

    return {
        "results": [
            {"user": name, **await outcome(change(name, asked))}
            async for name, asked in request.in_turn(by_user.items())
        ]
    }


def _changes(name: str, asked: list[Any]) -> dict[ScramMechanism, ScramCredential | None]:
    """Mechanism -> credential, None to remove it. Raises KlogError."""
    if not is_possible(name) or len(name.encode()) > NAME_BYTES_MAX:
        raise UnacceptableCredential(f"a user's name has 1 to {NAME_BYTES_MAX} bytes, and is neither . nor ..")
    changes: dict[ScramMechanism, ScramCredential | None] = {}
    for one in asked:
        try:
            mechanism = ScramMechanism(int(one.mechanism))
        except ValueError:
            raise UnsupportedSaslMechanism(
                f"mechanism {one.mechanism}: expected 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)"
            ) from None
        if mechanism in changes:
            raise DuplicateResource(f"{mechanism.label} of user {name!r} is named more than once")
        changes[mechanism] = _credential(mechanism, one) if hasattr(one, "salted_password") else None
    return changes


def _credential(mechanism: ScramMechanism, asked: Any) -> ScramCredential:
    if not ITERATIONS_MIN <= asked.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"expected {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations, got {asked.iterations}"
        )
    if len(asked.salted_password) != mechanism.digest_bytes or not 1 <= len(asked.salt) <= NAME_BYTES_MAX:
        raise UnacceptableCredential(
            f"{mechanism.label}: expected a salted password of {mechanism.digest_bytes} bytes and a salt of 1 to "
            f"{NAME_BYTES_MAX}, got {len(asked.salted_password)} and {len(asked.salt)}"
        )
    return ScramCredential.of_stretched(mechanism, bytes(asked.salted_password), bytes(asked.salt), asked.iterations)
