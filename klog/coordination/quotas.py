"""Quotas in ZooKeeper, as Kafka and its tools store them (KIP-13, KIP-55, KIP-612): below ``/config``.

    /config/clients/app                    {"version":1,"config":{"producer_byte_rate":"1048576"}}
    /config/users/alice                    the same; the user's credentials are there too
    /config/users/alice/clients/app
    /config/users/<default>/clients/<default>
    /config/ips/10.0.0.7                   {"version":1,"config":{"connection_creation_rate":"20"}}

Names are percent-encoded; ``<default>`` is the default user, client id or address. A change also writes a notice
(`config_notices`), so that brokers read only what has changed, and an act, in the same transaction. An unreadable value
is `Damage`: it limits no client, and stays until it is set or removed. Other keys of ``config`` stay, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.coordination import config_notices, paths
from klog.coordination.acts import Actor, commit_act, new_act
from klog.coordination.client_settings import RACE_TRIES, settings_of, write_settings
from klog.coordination.zookeeper import ZNode, ZooKeeper
from klog.errors import InvalidRequest, SessionLost, ZooKeeperError
from klog.security.quotas import DEFAULT, Entity, QuotaKey, Values, name_of, parse_value, plain_ip, text_of

QUOTA_ACT: Final = "quotas"
"""The kind of acts on quotas. The subject is the entity's path; the states are its quotas:
``{"producer_byte_rate":"1024"}``."""

Damage = dict[str, str]
"""Path of a node -> what cannot be read."""


@dataclass(slots=True)
class QuotasRead:
    """Quotas that were read, of entities without any too; and damage."""

    quotas: dict[Entity, Values] = field(default_factory=dict)
    damage: Damage = field(default_factory=dict)


def path_of(entity: Entity) -> str:
    """The node of an entity's quotas."""
    return paths.entity_config(entity.path)


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_all(zookeeper: ZooKeeper) -> QuotasRead:
    """All quotas. Raises SessionLost."""
    users, clients, ips = zookeeper.children_many([paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS])
    below = zookeeper.children_many([f"{paths.USER_CONFIGS}/{node}/clients" for node in users])
    entities = [Entity(client=name_of(node)) for node in clients] + [Entity(ip=name_of(node)) for node in ips]
    for user, of_user in zip(map(name_of, users), below, strict=True):
        entities.append(Entity(user))
        entities += [Entity(user, name_of(node)) for node in of_user]
    return read(zookeeper, entities)


def read(zookeeper: ZooKeeper, entities: Iterable[Entity]) -> QuotasRead:
    """The quotas of these entities; none for one without a node."""
    found = QuotasRead()
    entities = list(entities)
    for entity, node in zip(entities, zookeeper.get_many([path_of(one) for one in entities]), strict=True):
        found.quotas[entity] = _decoded(entity, node, found.damage)
    return found


def _decoded(entity: Entity, node: ZNode | None, damage: Damage) -> Values:
    values: dict[QuotaKey, float] = {}
    path = path_of(entity)
    try:
        settings = settings_of(path, node)
        if entity.ip not in (None, DEFAULT) and plain_ip(entity.ip) != entity.ip:
            raise InvalidRequest(f"the address is written {plain_ip(entity.ip)}")
    except ZooKeeperError as error:
        damage[path] = error.message
        return values
    except InvalidRequest as error:
        damage[path] = f"ZooKeeper node {path}: {error.message}"
        return values
    for key in QuotaKey:
        text = settings.get(key)
        if text is None or key.is_of_addresses != (entity.ip is not None):
            continue
        try:
            values[key] = parse_value(key, str(text))
        except InvalidRequest as error:
            damage[path] = f"ZooKeeper node {path}: {error.message}"
    return values


def state_of(values: Values) -> dict[str, str]:
    """Quotas as in the node, and in an act's state."""
    return {str(key): text_of(key, values[key]) for key in QuotaKey if key in values}


def read_act_state(state: object) -> Values:
    """Parse an act's state. Raises ZooKeeperError."""
    if not isinstance(state, dict):
        raise ZooKeeperError("the act keeps no quotas")
    try:
        return {QuotaKey(name): parse_value(QuotaKey(name), str(text)) for name, text in state.items()}
    except (ValueError, InvalidRequest) as error:
        raise ZooKeeperError(f"the act keeps no quotas: {error}") from None


# --- Writing ----------------------------------------------------------------------------------------------------------


def change(
    zookeeper: ZooKeeper, entity: Entity, changes: Mapping[QuotaKey, float | None], actor: Actor
) -> tuple[Values, Values]:
    """Set quotas of an entity, or remove those that are None; returns the quotas before and after.

    Writes nothing if they are equal. Raises ZooKeeperError if the node cannot be read, since it may have a user's
    credentials; SessionLost.
    """
    path = path_of(entity)
    for _ in range(RACE_TRIES):
        node = zookeeper.find(path)
        settings = settings_of(path, node)
        before = _decoded(entity, node, {})
        wanted: dict[str, object] = {name: value for name, value in settings.items() if name not in changes}
        wanted |= {str(key): text_of(key, value) for key, value in changes.items() if value is not None}
        after = {key: value for key in QuotaKey if (value := changes.get(key, before.get(key))) is not None}
        if wanted == settings:
            return before, after
        act = new_act(
            QUOTA_ACT,
            actor,
            quota=entity.path,
            before=state_of(before),
            after=state_of(after),
            clock=zookeeper.clock,
        )
        writes = [write_settings(path, node, wanted), config_notices.of_entity(entity.path)]
        if commit_act(zookeeper, act, writes, [path.rpartition("/")[0], paths.CONFIG_CHANGES]):
            config_notices.forget(zookeeper)
            return before, after
    raise SessionLost(f"{path}: others change it all the time; {RACE_TRIES} tries were too late")


def noticed(found: config_notices.Notices) -> set[Entity]:
    """The entities with quotas in notices."""
    return {entity for path in found.entities if (entity := Entity.of_path(path)) is not None}


def subject_of(path: str) -> str:
    """An act's entity in words; the path itself if it cannot be read."""
    entity = Entity.of_path(path)
    return path if entity is None else str(entity)
