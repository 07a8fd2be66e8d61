"""Users' SCRAM credentials, where Kafka stores them, so that its own tools manage them.

``/config/users/<name>``, the name percent-encoded, is
``{"version":1,"config":{"SCRAM-SHA-256":"salt=..,stored_key=..,server_key=..,iterations=.."}}``. Other keys of
``config``, such as quotas, stay, and so does a node with quotas of the user's client ids below it
(`klog.coordination.quotas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from klog.coordination import paths
from klog.coordination.acts import Actor, commit_act, new_act
from klog.coordination.client_settings import RACE_TRIES, settings_of, write_settings
from klog.coordination.zookeeper import Watch, ZooKeeper
from klog.errors import MalformedRequest, NoNode, SessionLost, ZooKeeperError
from klog.security.quotas import DEFAULT_NODE
from klog.security.scram import ScramCredential, ScramMechanism

USER_ACT: Final = "user"
"""The kind of act; its states have each credential's number of iterations."""

Credentials = dict[ScramMechanism, ScramCredential]


def names(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[str]:
    """All users with a node. The watch fires when one comes or goes, or, with none yet, when the first comes."""
    try:
        return [unquote(one) for one in zookeeper.children(paths.USER_CONFIGS, watch) if one != DEFAULT_NODE]
    except NoNode:
        if watch is not None and zookeeper.exists(paths.USER_CONFIGS, watch) is not None:
            return names(zookeeper, watch)
        return []


def read(zookeeper: ZooKeeper, name: str, watch: Watch | None = None) -> Credentials:
    """A user's credentials; {} for none. Raises ZooKeeperError, which does not show them, if they do not parse."""
    path = paths.user_config(name)
    try:
        node = zookeeper.get(path, watch)
    except NoNode:
        return {}
    settings = settings_of(path, node)
    found = {}
    for mechanism in ScramMechanism:
        text = settings.get(mechanism.label)
        if isinstance(text, str):
            try:
                found[mechanism] = ScramCredential.parse(text, mechanism)
            except MalformedRequest as error:
                raise ZooKeeperError(f"ZooKeeper node {path}, {mechanism.label}: {error.message}") from None
    return found


def write(
    zookeeper: ZooKeeper, name: str, changes: Mapping[ScramMechanism, ScramCredential | None], actor: Actor
) -> bool:
    """Set credentials, or remove those that are None: an act, which does not keep them.

    Returns False if one to be removed does not exist.
    """
    path = paths.user_config(name)
    for _ in range(RACE_TRIES):
        node = zookeeper.find(path)
        settings = settings_of(path, node)
        before = _shown(settings)
        for mechanism, credential in changes.items():
            if credential is not None:
                settings[mechanism.label] = str(credential)
            elif settings.pop(mechanism.label, None) is None:
                return False
        after = _shown(settings)
        new = [one.label for one, credential in changes.items() if credential is not None]
        after |= {label: f"{after[label]}, new" for label in new}
        act = new_act(USER_ACT, actor, user=name, before=before, after=after, clock=zookeeper.clock)
        if commit_act(zookeeper, act, [write_settings(path, node, settings)], [paths.USER_CONFIGS]):
            return True
    raise SessionLost(f"{path} could not be written in {RACE_TRIES} tries at ZooKeeper {zookeeper.address}")


def _shown(settings: Mapping[str, object]) -> dict[str, str]:
    """The part that an act may keep: which credentials there are, and their iterations."""
    found = {}
    for mechanism in ScramMechanism:
        text = settings.get(mechanism.label)
        if isinstance(text, str):
            _, _, iterations = text.rpartition("iterations=")
            found[mechanism.label] = f"iterations={iterations}" if iterations.isdecimal() else "damaged"
    return found


def is_possible(name: str) -> bool:
    """Whether a node can have that name."""
    return quote(name, safe="") not in ("", ".", "..")
