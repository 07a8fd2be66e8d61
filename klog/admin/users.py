"""The users of a cluster: who can log in by SCRAM (KIP-554). Permissions are `klog.admin.acls`' matter."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klog.admin.acts import here
from klog.client.answers import check, error_in
from klog.client.cluster import Cluster
from klog.coordination import scram_credentials
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NoSuchThing, Refused, UsageError
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail
from klog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES, ScramCredential, ScramMechanism

PASSWORD_CHARACTERS_MIN: Final = 8
LEARN_S: Final = 2.0
"""After a change each broker is asked about the user, and reads what was written before it answers: who logs in right
after the command, at any broker, is met by one that knows. One that does not answer in this time learns it later."""


@dataclass(frozen=True, slots=True)
class UserRow(MayFail):
    """A user. ``mechanisms`` are those by which it can log in; ``iterations`` how often each stretches its password."""

    user: str
    mechanisms: list[str]
    iterations: list[int]


async def list_users(cluster: Cluster, names: Iterable[str] | None = None) -> list[UserRow]:
    """All users, or these, by name. One that does not exist has failed."""
    asked = None if names is None else [{"name": name} for name in names]
    answer = await cluster.to_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
    check(answer)
    return sorted((_row(one) for one in answer.results), key=lambda row: row.user)


async def add_user(
    cluster: Cluster, name: str, password: str, mechanisms: Sequence[ScramMechanism], iterations: int = ITERATIONS_MIN
) -> UserRow:
    """A new user. Refused where it exists."""
    check_password(password)
    await preview_addition(cluster, name, mechanisms, iterations)
    return await _write(cluster, name, password, mechanisms, iterations)


async def preview_addition(
    cluster: Cluster, name: str, mechanisms: Sequence[ScramMechanism], iterations: int = ITERATIONS_MIN
) -> UserRow:
    """The row of the new user. Refused where it exists; nothing is changed."""
    if not name:
        raise UsageError("a user's name cannot be empty")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}, got {iterations}")
    if any(row.error is None for row in await list_users(cluster, [name])):
        raise Refused(f"user {name!r} exists already", hint=f"klog user passwd {shlex.quote(name)}")
    return UserRow(name, [one.label for one in mechanisms], [iterations] * len(mechanisms))


async def change_password(cluster: Cluster, name: str, password: str) -> UserRow:
    """Another password for the mechanisms that the user has. NoSuchThing for a user that does not exist."""
    check_password(password)
    row = await known(cluster, name)
    mechanisms = [found for label in row.mechanisms if (found := ScramMechanism.of(label)) is not None]
    return await _write(cluster, name, password, mechanisms, ITERATIONS_MIN)


async def delete_user(cluster: Cluster, name: str) -> UserRow:
    """Take every credential of a user away. Connections that it has open live on until they authenticate again."""
    row = await known(cluster, name)
    gone = [found for label in row.mechanisms if (found := ScramMechanism.of(label)) is not None]
    await _alter(cluster, [{"name": name, "mechanism": one.value} for one in gone], [])
    return row


async def known(cluster: Cluster, name: str) -> UserRow:
    """The row of a user; NoSuchThing for one that does not exist."""
    (row,) = await list_users(cluster, [name])
    if row.error is not None:
        raise NoSuchThing(f"user {name!r} does not exist", hint="klog user list")
    return row


def check_password(password: str) -> None:
    """UsageError for one that is too short."""
    if len(password) < PASSWORD_CHARACTERS_MIN:
        raise UsageError(f"the password has {len(password)} characters; at least {PASSWORD_CHARACTERS_MIN} are needed")


async def _write(
    cluster: Cluster, name: str, password: str, mechanisms: Sequence[ScramMechanism], iterations: int
) -> UserRow:
    """The password is stretched here: it does not leave this machine."""
    salts = {mechanism: secrets.token_bytes(SALT_BYTES) for mechanism in mechanisms}
    made = [
        {
            "name": name,
            "mechanism": mechanism.value,
            "iterations": iterations,
            "salt": salt,
            "salted_password": mechanism.stretch(password, salt, iterations),
        }
        for mechanism, salt in salts.items()
    ]
    await _alter(cluster, [], made)
    return UserRow(name, [one.label for one in mechanisms], [iterations] * len(mechanisms))


async def _alter(cluster: Cluster, deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]) -> None:
    answer = await cluster.to_controller(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=deletions,
        upsertions=upsertions,
    )
    for one in answer.results:
        check(one)
    names = {one["name"] for one in (*deletions, *upsertions)}
    await cluster.to_each(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, wait_s=LEARN_S, users=[{"name": name} for name in names]
    )


def _row(result: Any) -> UserRow:
    infos = sorted((int(one.mechanism), int(one.iterations)) for one in result.credential_infos)
    return UserRow(
        result.user,
        [ScramMechanism(number).label for number, _ in infos],
        [iterations for _, iterations in infos],
    ).failed_by(error_in(result))


def write_first(zookeeper: ZooKeeper, passwords: Mapping[str, str]) -> list[UserRow]:
    """Write users into ZooKeeper itself, before there are brokers to ask. Who has a password already keeps it.

    Blocks. Twice is as once: what was killed in between is begun again.
    """
    rows = []
    for name, password in passwords.items():
        known = scram_credentials.read(zookeeper, name)
        made = {
            one: ScramCredential.of_password(one, password, secrets.token_bytes(SALT_BYTES))
            for one in ScramMechanism
            if one not in known
        }
        if made:
            scram_credentials.write(zookeeper, name, made, here(zookeeper))
        having = {**known, **made}
        rows.append(UserRow(name, [one.label for one in having], [one.iterations for one in having.values()]))
    return rows
