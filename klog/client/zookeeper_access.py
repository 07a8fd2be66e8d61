"""How a client or a broker comes into ZooKeeper, by its settings: Kafka's, and klog's own.

zookeeper.username, zookeeper.password   who the session is, in ZooKeeper's scheme digest
zookeeper.set.acl                        true: nodes that are created are closed
zookeeper.acl.owner                      identity of the cluster's owner, NAME:DIGEST; the session's own by default
zookeeper.acl.streams                    identity of the paper's consumers, who write the nodes of groups
zookeeper.ssl.client.enable              true: TLS, with zookeeper.ssl.truststore.*, zookeeper.ssl.keystore.*,
                                         zookeeper.ssl.endpoint.identification.algorithm, as Kafka has them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from klog.client.security_files import read_security
from klog.config.setting import text_of
from klog.coordination.znode_acls import NAME_CHARS_MAX, check_identity, is_name
from klog.coordination.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess, ZooKeeperServers
from klog.errors import InvalidConfig, NoSuchThing, UsageError
from klog.net.client_tls import client_context
from klog.security.client_security import PROTOCOL

if TYPE_CHECKING:
    import ssl

    from klog.config import BrokerConfig

USERNAME: Final = "zookeeper.username"
PASSWORD: Final = "zookeeper.password"
SET_ACL: Final = "zookeeper.set.acl"
OWNER: Final = "zookeeper.acl.owner"
STREAMS: Final = "zookeeper.acl.streams"
TLS: Final = "zookeeper.ssl.client.enable"
KEY_STORE_PASSWORD: Final = "zookeeper.ssl.keystore.password"
TLS_DETAILS: Final = (
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.keystore.location",
    KEY_STORE_PASSWORD,
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.endpoint.identification.algorithm",
)
SETTINGS: Final = frozenset((USERNAME, PASSWORD, SET_ACL, OWNER, STREAMS, TLS, *TLS_DETAILS))
WITHOUT_USE: Final = frozenset(("zookeeper.clientCnxnSocket",))
"""Java's class of a connection; Kafka needs one for TLS."""


def says_how(given: Mapping[str, str]) -> bool:
    """Whether the settings say anything of how to come in."""
    return any(given.get(name) for name in SETTINGS)


def read_access(given: Mapping[str, str], source: str) -> ZooKeeperAccess:
    """What the settings say; others among them are skipped. ``source`` names them in errors.

    Raises UsageError for what is missing or wrong, NoSuchThing for a file that cannot be read.
    """
    if not says_how(given):
        return OPEN_ACCESS
    username, password = given.get(USERNAME) or None, given.get(PASSWORD) or ""
    if (username is None) != (not password):
        missing = PASSWORD if username is not None else USERNAME
        raise UsageError(f"{source}: {missing} is missing: {USERNAME} and {PASSWORD} go together")
    if username is not None and not is_name(username):
        raise UsageError(
            f"{source}: {USERNAME}={username!r} has to have at most {NAME_CHARS_MAX} letters, digits, '.', '_', '-'"
        )
    sets_acls = _flag(given, SET_ACL, source)
    if sets_acls and username is None:
        raise UsageError(f"{source}: {SET_ACL}=true needs {USERNAME} and {PASSWORD}: whose are the nodes to be?")
    owner, streams = (
        check_identity(given[name], f"{source}: {name}") if given.get(name) else None for name in (OWNER, STREAMS)
    )
    context = _context(given, source) if _flag(given, TLS, source) else None
    return ZooKeeperAccess(username, password, sets_acls, owner, streams, context)


def servers_of(config: BrokerConfig) -> ZooKeeperServers:
    """A broker's ZooKeeper. InvalidConfig."""
    given = {name: text for name in SETTINGS if (text := text_of(config[name])) is not None}
    return ZooKeeperServers(config.text("zookeeper.connect"), _access(given, "the broker's settings"))


def without_access(keywords: Mapping[str, Any], whose: str) -> tuple[ZooKeeperAccess, dict[str, Any]]:
    """How a client of the library comes in by its keywords (``_`` for ``.``), and the other keywords. InvalidConfig."""
    own = {keyword: name for keyword in keywords if (name := keyword.replace("_", ".")) in SETTINGS | WITHOUT_USE}
    given = {name: str(text_of(keywords[keyword])) for keyword, name in own.items() if keywords[keyword] is not None}
    return _access(given, whose), {keyword: value for keyword, value in keywords.items() if keyword not in own}


def _access(given: Mapping[str, str], source: str) -> ZooKeeperAccess:
    try:
        return read_access(given, source)
    except (UsageError, NoSuchThing) as error:
        raise InvalidConfig(error.message, hint=error.hint) from None


def _context(given: Mapping[str, str], source: str) -> ssl.SSLContext:
    try:
        return client_context(read_security(_tls(given), source))
    except (UsageError, NoSuchThing) as error:  # it knows the settings by the names that clients of brokers have
        message = error.message.replace(": ssl.", ": zookeeper.ssl.", 1)
        raise type(error)(message, hint=error.hint) from None


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of TLS as a client of brokers would have them."""
    found = {name.removeprefix("zookeeper."): given[name] for name in TLS_DETAILS if name in given}
    password = given.get(KEY_STORE_PASSWORD)
    if password:
        found["ssl.key.password"] = password  # Kafka has one password for ZooKeeper's store and the key in it
    return {PROTOCOL: "SSL", **found}


def _flag(given: Mapping[str, str], name: str, source: str) -> bool:
    value = (given.get(name) or "false").lower()
    if value not in ("true", "false"):
        raise UsageError(f"{source}: {name} must be true or false, got {given[name]!r}")
    return value == "true"
