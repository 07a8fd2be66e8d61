"""Secrets are planted wherever one can be given, and looked for, in every usual encoding, wherever klog writes.

One secured broker at the level of debug, with an encrypted key and passwords of its own; an administrator and a user.
"""

from __future__ import annotations

import base64
import html
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal
from tests.cli.runner import Ran, klog
from tests.rows import each
from tests.security.broker_doors import add_user, ports_of
from tests.security.certificates import DAY, Authority
from tests.zookeeper_fixture import session_of

pytestmark = pytest.mark.xdist_group("planted")  # the last test looks at what the others have left

PLANTED = {
    name: f"pl4nted+{name}/s=cr&et"
    for name in ("user", "broker", "admin", "key", "store", "wrong", "malformed", "flag")
}
TIMEOUT = ("--timeout", "10s")


def forms(secret: str) -> list[bytes]:
    """What it may look like: as it is, in URLs, JSON, HTML, hexadecimal, and in base64 at each of three places."""
    plain = secret.encode()
    found = [plain, quote(secret, safe="").encode(), html.escape(secret).encode(), plain.hex().encode()]
    found += [plain.hex().upper().encode(), " ".join(f"{one:02x}" for one in plain).encode()]
    for before in range(3):
        found.append(base64.b64encode(bytes(before) + plain)[4 if before else 0 : -4])
    return found


def leaks(content: bytes) -> list[str]:
    """The planted secrets that the content has."""
    return [name for name, secret in PLANTED.items() for form in forms(secret) if form in content]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, folder: Path) -> Iterator[RunningBroker]:
    authority = Authority(folder)
    one = RunningBroker(folder / "broker", f"{zookeeper.address}/planted-{secrets.token_hex(4)}")
    one.listen = "SASL_SSL://localhost:0"
    key = PLANTED["key"].encode()
    login = 'Module required username="broker" password="{broker}";'.format(**PLANTED)
    one.settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue(folder / "broker.pem", ends=300 * DAY, password=key)),
        "ssl.key.password": PLANTED["key"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.path),
        "ssl.truststore.password": PLANTED["store"],
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'Module required user_mallory="{user}";'.format(**PLANTED),
        "authorizer.class.name": "klog",
        "super.users": "User:broker;User:admin",
        "metrics.port": "0",
    }
    one.extra_arguments = ["-v"]
    for name in ("broker", "admin"):
        add_user(one, name, PLANTED[name])
    with one.running():
        yield one


@pytest.fixture(scope="module")
def files(broker: RunningBroker, folder: Path) -> dict[str, Path]:
    """Client properties by whose they are."""
    port = ports_of(broker)["SASL_SSL"]

    def written(name: str, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Path:
        path = folder / f"{name}.properties"
        path.write_text(
            f"bootstrap.servers=localhost:{port}\nsecurity.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f"ssl.truststore.location={folder / 'test-authority.pem'}\nssl.truststore.type=PEM\n"
            f'sasl.jaas.config=Module required username="{user}" password="{password}";\n'
        )
        return path

    return {
        "admin": written("admin", "admin", PLANTED["admin"]),
        "user": written("user", "mallory", PLANTED["user"]),
        "plain": written("plain", "mallory", PLANTED["user"], "PLAIN"),
        "wrong": written("wrong", "mallory", PLANTED["wrong"]),
    }


@pytest.fixture(autouse=True)
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLOG_HOME", str(folder / "home"))


def run(*words: Any, **given: Any) -> Ran:
    """What the command shows has no secret."""
    found = klog(*words, **given)
    shown = (found.stdout + found.stderr).encode()
    assert not leaks(shown), (words, shown)
    assert "Traceback" not in found.stderr, found.stderr
    return found


LOOKING = (
    *("status", "broker config 1", "user list", "acl list", "events --kind act", "why denied"),
    *("metrics", "zk get /config/users/mallory", "zk tree /config"),
)


def test_no_command_shows_a_secret(broker: RunningBroker, files: dict[str, Path], folder: Path) -> None:
    admin = ("--client-config", files["admin"])
    (folder / "password").write_text(PLANTED["user"] + "\n")
    assert run("--trace", "user", "add", "mallory", "--password-file", folder / "password", *admin).code == 0
    assert run("--trace", "user", "passwd", "mallory", "--password-file", folder / "password", *admin).code == 0
    assert run("topic", "create", "work", *admin).code == 0
    assert run("acl", "add", "User:mallory", "read,write", "topic:work", *admin).code == 0
    assert run("acl", "add", "User:mallory", "read", "group:g", *admin).code == 0
    for who in ("user", "plain"):
        as_who = ("--client-config", files[who])
        assert run("--trace", "produce", "work", *as_who, input=b"one\ntwo\n").code == 0
        assert run("--trace", "tail", "work", "-o", "start", "-G", "g", "-c", "1", *as_who).code == 0
    for words in LOOKING:
        run("--trace", *TIMEOUT, *words.split(), *admin, "-o", "json")
    for words in ("user list", "produce work", "tail work -e"):
        for who in ("user", "wrong"):
            code = run("--trace", *TIMEOUT, *words.split(), "--client-config", files[who], input=b"x\n").code
            assert code == 1 or who == "user", words
    assert run("status", "--html", folder / "report.html", *admin).code == 0
    address = f"localhost:{ports_of(broker)['SASL_SSL']}"
    assert run("--client-config", files["user"], "profile", "add", "planted", "-B", address).code == 0
    assert run("profile", "set", "planted", f"client_config={files['user']}").code == 0
    assert run("profile", "show", "planted", "-o", "json").code == 0
    assert run("profile", "test", "planted").code == 0
    assert run("profile", "set", "planted", f"sasl_password={PLANTED['flag']}").code == 2
    with session_of(broker.zookeeper, create_chroot=True) as session:
        stored = session.get("/config/users/mallory").data
    assert b"stored_key" in stored and not leaks(stored)


BAD = (
    *(
        'sasl.jaas.config=x required username="a" password="{0}',
        'sasl.jaas.config=x required username="a" passwrd="{0}";',
    ),
    *('sasl.jaas.config=x username="a" password={0}', "sasl.jaas.config={0}", "sasl.pasword={0}", "={0}", "{0}"),
    *("sasl.username=a\nsasl.password={0}", "ssl.keystore.key={0}\nssl.keystore.certificate.chain={0}", "password={0}"),
    *(
        "ssl.truststore.certificates={0}",
        "ssl.key.password={0}\nssl.keystore.location={1}",
        "sasl.jaas.config=\\u00{0}",
    ),
    'sasl.mechanism=OAUTHBEARER\nsasl.jaas.config=x required clientSecret="{0}";',
)


@each("text", BAD, ids=range(len(BAD)))
def test_a_bad_file_is_refused_without_what_it_keeps_secret(
    files: dict[str, Path], folder: Path, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.properties"
    lines = files["user"].read_text().splitlines()
    good = "\n".join(line for line in lines if not line.startswith("sasl.jaas"))
    path.write_text(f"{good}\n{text.format(PLANTED['malformed'], folder / 'broker.pem')}\n")
    assert run("--trace", *TIMEOUT, "topic", "list", "--client-config", path).code in (1, 2)


@each(
    "words", ["produce work", "tail work -e", "perf produce work", "broker start --id 9 --dir d -z 127.0.0.1:1", "up"]
)
@each("name", ["sasl.password", "sasl.jaas.config", "listener.name.a.plain.sasl.jaas.config"])
def test_a_secret_is_not_taken_from_the_command_line(words: str, name: str) -> None:
    assert run(*words.split(), "-X", f"{name}={PLANTED['flag']}").code == 2


BROKERS_BAD = ("listener.name.sasl_ssl.plain.sasl.jaas.config={0}", "ssl.key.password={0}", "ssl.keystore.key={0}")


@each("text", BROKERS_BAD, ids=range(len(BROKERS_BAD)))
def test_a_broker_refuses_bad_settings_without_what_they_keep_secret(
    broker: RunningBroker, tmp_path: Path, text: str
) -> None:
    name, _, value = text.format(PLANTED["malformed"]).partition("=")
    other = RunningBroker(tmp_path, broker.zookeeper, 9, **{**broker.settings, name: value})
    other.extra_arguments = ["-v"]
    other.listen = "SASL_SSL://localhost:0"
    try:
        other.start(expect_ready=False)
        assert not leaks(other.log_path.read_bytes())
    finally:
        other.end()


TYPED = (
    "topic list -X sasl.password={0}",
    'produce work -X \'sasl.jaas.config=Module required username="a" password="{0}";\'',
    "profile set planted sasl_password={0}",
    '! echo "password : {0}" > /dev/null',
)


def test_what_is_typed_in_the_shell_stays_out_of_its_files(
    broker: RunningBroker, files: dict[str, Path], folder: Path
) -> None:
    """klog takes no secret from a line. A person may type one all the same, and the history is a file."""
    with on_terminal("shell", "--client-config", str(files["admin"])) as (process, terminal):
        terminal.wait_to_show("1/1 urp:")
        for count, line in enumerate(TYPED, 1):
            terminal.type(line.format(PLANTED["flag"]) + f"\recho done {count}\r")
            terminal.wait_to_show(f"\ndone {count}")
        for count, words in enumerate(("acl list", "zk get /config/users/admin", "history"), 11):
            terminal.type(f"{words}\recho done {count}\r")
            terminal.wait_to_show(f"\ndone {count}")
        terminal.type("exit\r")
        assert process.wait(20) == 0
    kept = (folder / "home" / "shell_history").read_text()
    assert not leaks(kept.encode()), kept
    assert kept.count("***") >= len(TYPED)


def test_no_file_and_no_process_has_a_secret(broker: RunningBroker, files: dict[str, Path], folder: Path) -> None:
    for what in ("cmdline", "environ"):
        assert not leaks(Path(f"/proc/{broker.pid}/{what}").read_bytes())
    broker.stop()
    given = {*files.values(), folder / "password", broker.folder / "secret.properties"}
    looked_at = 0
    for path in folder.rglob("*"):
        if path.is_file() and path not in given:
            looked_at += 1
            assert not leaks(path.read_bytes()), path
    assert looked_at > 20
    secret = [path for path in (broker.folder / "data").rglob("*secret*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in secret)
