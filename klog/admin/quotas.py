"""Quotas of users, client ids and addresses, by Kafka's requests (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klog.client.answers import check as check_answer
from klog.client.cluster import Cluster
from klog.config import units
from klog.errors import InvalidRequest, NoSuchThing, UsageError
from klog.protocol.apis import ApiKey
from klog.security.quotas import (
    DEFAULT,
    DEFAULT_NODE,
    ENTITY_TYPES,
    Entity,
    Limit,
    QuotaKey,
    QuotaTable,
    Values,
    check_value,
    parse_key,
)

VERSION_MAX: Final = 1
BYTES: Final = "bytes/s"
"""The unit of quotas whose values are typed as sizes."""


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The quotas of an entity; ``<default>`` is the default user, client id or address. None where there is none."""

    user: str | None
    client: str | None
    producer_byte_rate: int | None
    consumer_byte_rate: int | None
    request_percentage: float | None
    controller_mutation_rate: float | None
    ip: str | None
    connection_creation_rate: int | None


@dataclass(frozen=True, slots=True)
class AppliedQuota:
    """What applies to a client of a user, or to an address. ``value`` None: nothing limits it; else ``user``,
    ``client`` and ``ip`` are those of the entity that has the quota, and ``shared_by`` says who uses it up together."""

    quota: str
    value: float | None
    unit: str
    user: str | None
    client: str | None
    shared_by: str | None
    ip: str | None


def row(entity: Entity, values: Values) -> QuotaRow:
    """Quotas as they are shown."""
    whole = {key: int(value) for key, value in values.items() if key.whole_max is not None}
    return QuotaRow(
        _shown(entity.user),
        _shown(entity.client),
        whole.get(QuotaKey.PRODUCER_BYTE_RATE),
        whole.get(QuotaKey.CONSUMER_BYTE_RATE),
        values.get(QuotaKey.REQUEST_PERCENTAGE),
        values.get(QuotaKey.CONTROLLER_MUTATION_RATE),
        _shown(entity.ip),
        whole.get(QuotaKey.CONNECTION_CREATION_RATE),
    )


def _shown(name: str | None) -> str | None:
    return DEFAULT_NODE if name == DEFAULT else name


async def read_quotas(cluster: Cluster) -> dict[Entity, Values]:
    """All quotas, as the broker that is asked has them, without those that klog does not know."""
    answer = await cluster.to_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSION_MAX, components=[], strict=False)
    check_answer(answer)
    found: dict[Entity, Values] = {}
    for entry in answer.entries or ():
        names = {
            str(one.entity_type): DEFAULT if one.entity_name is None else str(one.entity_name) for one in entry.entity
        }
        if names.keys() <= set(ENTITY_TYPES):
            known = {str(key) for key in QuotaKey}
            values = {QuotaKey(one.key): float(one.value) for one in entry.values if one.key in known}
            found[Entity(*map(names.get, ENTITY_TYPES))] = values
    return found


async def list_quotas(cluster: Cluster, wanted: Entity = Entity()) -> list[QuotaRow]:
    """The quotas of all entities, or of those with this user and client id, or this address; sorted."""
    found = await read_quotas(cluster)
    return [
        row(entity, found[entity])
        for entity in sorted(found, key=lambda one: (one.user is None, one.path))
        if all(name is None or name == there for name, there in zip(wanted, entity, strict=True))
    ]


async def applied_quotas(cluster: Cluster, user: str, client: str, ip: str | None) -> list[AppliedQuota]:
    """Which quotas apply to a client of a user, one row for each kind of quota; and to an address, if one is given."""
    table = QuotaTable(await read_quotas(cluster))
    found = [_applied(key, table.limit(key, user, client)) for key in QuotaKey if not key.is_of_addresses]
    if ip is not None:
        found.append(_applied(QuotaKey.CONNECTION_CREATION_RATE, table.connection_limit(ip)))
    return found


def _applied(key: QuotaKey, limit: Limit | None) -> AppliedQuota:
    if limit is None:
        return AppliedQuota(str(key), None, key.unit, None, None, None, None)
    value = limit.rate if key.whole_max is None else int(limit.rate)
    user, client, ip = map(_shown, limit.entity)
    return AppliedQuota(str(key), value, key.unit, user, client, limit.shared_by, ip)


async def set_quotas(
    cluster: Cluster, entity: Entity, changes: Mapping[QuotaKey, float | None], *, validate_only: bool = False
) -> QuotaRow:
    """Set quotas, and remove those that are None; what the entity has then. Raises the broker's error.

    ``validate_only``: the same answer, and nothing is changed.
    """
    await alter_quotas(cluster, entity, changes, validate_only=validate_only)
    before = (await read_quotas(cluster)).get(entity, {})
    after = {key: value for key in QuotaKey if (value := changes.get(key, before.get(key))) is not None}
    return row(entity, after)


async def remove_quotas(
    cluster: Cluster, entity: Entity, keys: list[QuotaKey], *, validate_only: bool = False
) -> QuotaRow:
    """Remove these quotas, or all; what is left. NoSuchThing for one that the entity does not have."""
    there = (await read_quotas(cluster)).get(entity, {})
    missing = [key for key in keys if key not in there]
    if missing or not there:
        what = f"the quota {missing[0]}" if missing else "a quota"
        raise NoSuchThing(f"{entity} does not have {what}", hint="`klog quota list` shows the quotas")
    return await set_quotas(cluster, entity, dict.fromkeys(keys or list(there)), validate_only=validate_only)


async def alter_quotas(
    cluster: Cluster, entity: Entity, changes: Mapping[QuotaKey, float | None], *, validate_only: bool = False
) -> None:
    """One change of one entity. Raises the broker's error."""
    entry = {
        "entity": [
            {"entity_type": kind, "entity_name": None if name == DEFAULT else name}
            for kind, name in zip(ENTITY_TYPES, entity, strict=True)
            if name is not None
        ],
        "ops": [
            {"key": str(key), "value": value or 0.0, "remove": value is None} for key, value in sorted(changes.items())
        ],
    }
    answer = await cluster.to_any(ApiKey.ALTER_CLIENT_QUOTAS, VERSION_MAX, entries=[entry], validate_only=validate_only)
    for one in answer.entries:
        check_answer(one)


def quota_named(text: str) -> QuotaKey:
    """UsageError for one that does not exist."""
    try:
        return parse_key(text)
    except InvalidRequest as error:
        raise UsageError(error.message) from None


def quota_value(key: QuotaKey, text: str) -> float:
    """What was typed: ``20MB/s``, ``20MB`` or a number for rates in bytes, ``50%``, ``10/s`` for others. UsageError."""
    plain = text.strip()
    try:
        if key is QuotaKey.REQUEST_PERCENTAGE:
            value = float(plain.removesuffix("%"))
        else:
            plain = plain.removesuffix("/s")
            value = float(units.parse_size(plain) if key.unit == BYTES else plain)
        return check_value(key, value)
    except InvalidRequest as error:
        raise UsageError(error.message) from None
    except (ValueError, UsageError):
        example = "20MB/s" if key.unit == BYTES else "50" if key is QuotaKey.REQUEST_PERCENTAGE else "10/s"
        raise UsageError(f"{key}={text}: expected a number above 0, as {key}={example}") from None
