"""What `klog security init` writes: all that a cluster needs to be closed, in one folder.

    ca.pem               the certificate of the cluster's own authority: clients believe it
    ca.key               its key: with it one makes certificates that clients and brokers believe
    broker.pem           key and certificate of the brokers, for all the hosts that were named
    zookeeper.pem        key and certificate of ZooKeeper's servers, for the same hosts: klog zookeeper start --tls
    broker.properties    a broker's settings: TLS and SCRAM on every connection, permissions on
    client.properties    how the first administrator connects: Kafka's client properties, for every command and client
    streams.properties   how the paper's consumers come into ZooKeeper, beside what their own user needs
    passwords.json       the first users and their passwords; their verifiers go into ZooKeeper before a broker starts

All but ca.pem are for their owner's eyes alone (0600). The folder is there whole or not at all.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klog.admin.local_state import AUTHORITY, CLIENT_SETTINGS, ZOOKEEPER_CERTIFICATE
from klog.config.properties import read_text
from klog.coordination.znode_acls import identity_of
from klog.errors import InvalidConfig, NoSuchThing, Refused, UsageError
from klog.storage.filesystem import OsFileSystem

ADMINISTRATOR: Final = "admin"
BROKER: Final = "broker"
"""The user that brokers are among themselves."""

OWNER: Final = "klog"
STREAMS: Final = "streams"
"""The identities in ZooKeeper: whose the cluster's nodes are, and who writes those of the paper's consumers."""

PASSWORD_BYTES: Final = 24
MECHANISM: Final = "SCRAM-SHA-512"

AUTHORITY_KEY, BROKER_CERTIFICATE = "ca.key", "broker.pem"
BROKER_SETTINGS, STREAMS_SETTINGS, PASSWORDS = "broker.properties", "streams.properties", "passwords.json"

_WHAT: Final[Mapping[str, str]] = {
    AUTHORITY: "certificate of the authority: clients trust it",
    AUTHORITY_KEY: "key of the authority: keep it off the brokers' machines",
    BROKER_CERTIFICATE: "key and certificate of the brokers",
    ZOOKEEPER_CERTIFICATE: "key and certificate of ZooKeeper's servers: klog zookeeper start --tls",
    BROKER_SETTINGS: "settings of each broker: klog broker start --config",
    CLIENT_SETTINGS: "how the administrator connects: --client-config, or client_config of a profile",
    STREAMS_SETTINGS: "how the paper's consumers come into ZooKeeper: settings of klog.Consumer",
    PASSWORDS: "the first users; klog user add writes their verifiers into ZooKeeper",
}


@dataclass(frozen=True, slots=True)
class SecurityFileRow:
    """One file. ``mode`` in octal digits."""

    file: str
    mode: str
    what: str


def init(
    folder: Path, hosts: Sequence[str] = (), administrator: str = ADMINISTRATOR, *, zookeeper_tls: bool = False
) -> list[SecurityFileRow]:
    """Write the folder. ``hosts``: names and addresses of the servers, besides this machine's own. ``zookeeper_tls``:
    the settings say that ZooKeeper is reached by TLS.

    Refused where the folder exists already: new certificates would lock out every client of the old ones. UsageError
    for a name that no user can have.
    """
    if folder.exists() and any(folder.iterdir()):
        raise Refused(
            f"{folder} is not empty, and new keys in the place of others would lock out their users",
            hint="choose another folder (--dir), or move this one away",
        )
    if not administrator or administrator == BROKER or any(one in administrator for one in ';,="\\ '):
        raise UsageError(f"{administrator!r} cannot be the administrator's name", hint="letters, digits, '.', '-', '_'")
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = OsFileSystem()
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # 0700
    try:
        for name, content in _contents(folder, [*_own_names(), *hosts], administrator, zookeeper_tls).items():
            files.replace(str(part / name), content, private=name != AUTHORITY)
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return rows(folder)


def rows(folder: Path) -> list[SecurityFileRow]:
    """What each file of the folder is."""
    found = []
    for name, what in _WHAT.items():
        path = folder / name
        if path.exists():
            found.append(SecurityFileRow(str(path), f"{stat.S_IMODE(path.stat().st_mode):04o}", what))
    return found


def is_there(folder: Path) -> bool:
    """Whether `init` has written it."""
    return (folder / PASSWORDS).exists()


def passwords(folder: Path) -> dict[str, str]:
    """The first users, each with its password. NoSuchThing, InvalidConfig."""
    path = folder / PASSWORDS
    try:
        found = json.loads(read_text(path))["users"]
        return {str(name): str(password) for name, password in found.items()}
    except OSError as error:
        raise NoSuchThing(f"cannot read {path}: {error.strerror}", hint=f"klog security init --dir {folder}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidConfig(f"{path} is damaged: expected an object with users and their passwords") from None


def _contents(folder: Path, hosts: Sequence[str], administrator: str, zookeeper_tls: bool) -> dict[str, bytes]:
    from klog.admin.certificates import issue, new_authority  # 50 ms that reading the folder does not need

    authority = new_authority(f"klog cluster {secrets.token_hex(4)}")
    users = {BROKER: secrets.token_urlsafe(PASSWORD_BYTES), administrator: secrets.token_urlsafe(PASSWORD_BYTES)}
    owner, streams = (secrets.token_urlsafe(PASSWORD_BYTES) for _ in (OWNER, STREAMS))
    where = folder.absolute()
    by_tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(where / AUTHORITY),
        "zookeeper.ssl.truststore.type": "PEM",
    }
    in_zookeeper = {
        **(by_tls if zookeeper_tls else {}),
        "zookeeper.set.acl": "true",
        "zookeeper.username": OWNER,
        "zookeeper.password": owner,
        "zookeeper.acl.streams": identity_of(STREAMS, streams),
    }
    of_streams = {
        **(by_tls if zookeeper_tls else {}),
        "zookeeper.set.acl": "true",
        "zookeeper.username": STREAMS,
        "zookeeper.password": streams,
        "zookeeper.acl.owner": identity_of(OWNER, owner),
    }
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    broker = {
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(where / BROKER_CERTIFICATE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(where / AUTHORITY),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": f'{login} username="{BROKER}" password="{users[BROKER]}";',
        "authorizer.class.name": "klog",
        "super.users": f"User:{BROKER};User:{administrator}",
        "allow.everyone.if.no.acl.found": "false",
        **in_zookeeper,
    }
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(where / AUTHORITY),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{login} username="{administrator}" password="{users[administrator]}";',
        **in_zookeeper,
    }
    return {
        AUTHORITY: authority.certificate_pem,
        AUTHORITY_KEY: authority.key_pem,
        BROKER_CERTIFICATE: issue(authority, BROKER, hosts),
        ZOOKEEPER_CERTIFICATE: issue(authority, "zookeeper", hosts),
        BROKER_SETTINGS: _properties("Settings of a broker that is closed; keep this file secret.", broker),
        CLIENT_SETTINGS: _properties("How the administrator connects; keep this file secret.", client),
        STREAMS_SETTINGS: _properties(
            "How the paper's consumers come into ZooKeeper; keep this file secret.", of_streams
        ),
        PASSWORDS: json.dumps({"version": 1, "users": users}, indent=1).encode() + b"\n",
    }


def _own_names() -> list[str]:
    """Those of this machine. Both names: which of them others use is for the network to say."""
    names = dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()))
    return [name for name in names if name]


def _properties(head: str, settings: Mapping[str, str]) -> bytes:
    lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in settings.items())
    return "\n".join((f"# {head}", *lines, "")).encode()
