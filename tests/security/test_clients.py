"""Stock clients over TLS and SASL: what they produce they consume; what is wrong is refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.security.broker_doors import Doors, add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.security.stock_clients import by_aiokafka, by_kafka_python, consumed

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    authority = Authority(folder)
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('doors')}")
    broker.listen = listen_to(*LISTENERS)
    broker.settings = {**pem(folder, authority), "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    add_user(broker, "alice", "correct horse")
    with broker.running():
        yield Doors(broker, ports_of(broker), authority)


def of_alice(mechanism: str) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": "correct horse"}


def test_kafka_python(doors: Doors) -> None:
    by_kafka_python(doors, "SASL_SSL", **of_alice("SCRAM-SHA-512"))


async def test_aiokafka(doors: Doors) -> None:
    await by_aiokafka(doors, "SASL_SSL", **of_alice("SCRAM-SHA-256"))


def test_a_profile_has_a_command_that_prints_the_password(
    doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLOG_HOME", str(tmp_path))
    config = tmp_path / "prod.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"ssl.ca.location={doors.authority.path}\n"
    )
    secret = tmp_path / "secret file"
    (tmp_path / "profiles.toml").write_text(
        f'[prod]\nbootstrap_server = "{doors.address("SASL_SSL")}"\n'
        f'client_config = "prod.properties"\npassword_command = "cat \'{secret}\'"\n'
    )
    listed = ("broker", "list", "--profile", "prod", "-v", "--trace")
    without = klog(*listed)
    assert without.code == 1 and "SECRET_UNAVAILABLE" in klog(*listed, "-o", "json").stderr
    secret.write_text("correct horse\n")
    ran = klog(*listed)
    assert ran.code == 0 and "correct horse" not in ran.stdout + ran.stderr, ran
    shown = klog("profile", "show", "prod", "-o", "json")
    assert shown.rows[0]["password_command"] == f"cat '{secret}'"
    config.write_text(config.read_text() + "sasl.password=another\n")
    assert "sasl.password" in klog(*listed).stderr


def test_settings_of_the_connection_as_flags(doors: Doors, tmp_path: Path) -> None:
    token = tmp_path / "config"
    token.write_text("sasl.username=alice\nsasl.password=correct horse\nsasl.mechanism=PLAIN\n")
    tls = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={doors.authority.path}")
    at_tls, at_sasl = ("-B", doors.address("SSL")), ("-B", doors.address("SASL_SSL"))
    sasl = ("-X", "security.protocol=SASL_SSL", *tls[2:], "--client-config", token)
    topic = unique("t")
    for words in (
        ("topic", "create", topic, "-X", "retention.ms=1d", *tls, *at_tls),
        (*tls, "topic", "describe", topic, *at_tls),
        ("produce", topic, "-X", "linger.ms=1", *tls, *at_tls),
        ("tail", topic, "-o", "start", "-c", "1", *tls, *at_tls),
        ("perf", "consume", topic, *tls, *at_tls),
        ("broker", "list", *sasl, *at_sasl),
        ("broker", "list", *sasl, "-X", "sasl.mechanism=SCRAM-SHA-512", *at_sasl),
    ):
        ran = klog(*words, input="one\n")
        assert ran.code == 0, (words, ran)
    for flags, named in (
        (("-X", "sasl.password=planted"), "sasl.password"),
        (("-X", "sasl.jaas.config=planted"), "sasl.jaas.config"),
        (("-X", "retention.ms=1"), "retention.ms"),
        (("-X", "sasl.username=alice"), "security.protocol"),
        (("-X", "security.protocol"), "security.protocol"),
        (("-X", "security.protocol=SSL", "-X", "security.protocol=SSL"), "twice"),
    ):
        ran = klog("broker", "list", *flags, *at_tls, "-o", "json")
        assert ran.code == 2 and named in ran.error["message"] and "planted" not in ran.stderr, ran
    assert klog("produce", topic, "-X", "sasl.password=planted", *at_tls).code == 2


def test_the_other_cluster_by_its_profile(doors: Doors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLOG_HOME", str(tmp_path))
    (tmp_path / "prod.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=correct horse\n"
        f"ssl.ca.location={doors.authority.path}\n"
    )
    at_zookeeper = f'zookeeper = "{doors.broker.zookeeper}"\nclient_config = "prod.properties"\n'
    (tmp_path / "profiles.toml").write_text(
        f'[prod]\nbootstrap_server = "{doors.address("SASL_SSL")}"\nclient_config = "prod.properties"\n'
        f"[found]\n{at_zookeeper}"
        f'[other]\n{at_zookeeper}cluster_id = "another"\n'
        f"[kept]\n{at_zookeeper}read_only = true\n"
    )
    source, into = unique("t"), unique("t")
    at = ("-B", doors.address("PLAINTEXT"))
    for topic in (source, into):
        assert klog("topic", "create", topic, *at).code == 0
    assert klog("produce", source, *at, input="one\ntwo\n").code == 0
    replay = ("replay", source, into, *at, "--to-bootstrap-server")
    ran = klog(*replay, "@prod", "-o", "json")
    assert ran.code == 0 and sum(row["messages"] for row in ran.rows) == 2, ran
    ran = klog(*replay, "@found", "--again", "-o", "json")
    assert ran.code == 0 and sum(row["messages"] for row in ran.rows) == 2, ran
    for name, code, exit_code in (("none", "NOT_FOUND", 1), ("other", "WRONG_CLUSTER", 1), ("kept", "USAGE", 2)):
        ran = klog(*replay, f"@{name}", "-o", "json")
        assert (ran.code, ran.error["code"]) == (exit_code, code), ran
    audited = klog("audit", "report", source, *at, "--mirror", "@prod")
    assert "security" not in audited.stderr and "@prod" not in audited.stderr, audited


KCAT = shutil.which("kcat")


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")
def test_kcat(doors: Doors, tmp_path: Path) -> None:
    """By a file, since its own flags show passwords to `ps`."""

    def command(password: str, *words: str) -> list[str]:
        settings = doors.librdkafka("SASL_SSL", **login("SCRAM-SHA-512", password=password))
        (tmp_path / "kcat").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [str(KCAT), "-F", str(tmp_path / "kcat"), *words]

    def run(*words: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        asked = command("correct horse", *words)
        return subprocess.run(asked, input=text, capture_output=True, timeout=40, check=False)

    topic = unique("t")
    sent = b"".join(b"%d\n" % number for number in range(20))
    produced = run("-P", "-t", topic, "-X", "acks=all", text=sent)
    assert produced.returncode == 0, produced.stderr
    consumed = run("-C", "-t", topic, "-o", "beginning", "-e", "-q")
    assert (consumed.returncode, consumed.stdout) == (0, sent), consumed.stderr
    asked = command("wrong horse", "-L", "-m", "40")
    with subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as refused:
        assert refused.stderr is not None
        try:
            assert any(b"SASL" in line and b"uthentication" in line for line in refused.stderr)
        finally:
            refused.kill()  # it would try again until its time is over


def test_users_by_kafkas_requests(doors: Doors) -> None:
    """Made, used at once, changed, listed, and taken away, by librdkafka."""
    admin = AdminClient(doors.librdkafka("SASL_SSL", **login("SCRAM-SHA-256")))
    name = unique("user/ä")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)

    def alter(*changes: object) -> None:
        for future in admin.alter_user_scram_credentials(list(changes)).values():
            future.result(10)

    def can_log_in(password: str) -> bool:
        client = AdminClient(doors.librdkafka("SASL_SSL", **login("SCRAM-SHA-256", name, password)))
        try:
            return bool(client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    alter(UserScramCredentialUpsertion(name, info, b"first"))
    assert can_log_in("first")
    alter(UserScramCredentialUpsertion(name, info, b"second"))
    assert can_log_in("second") and not can_log_in("first")
    found = admin.describe_user_scram_credentials([name])[name].result(10)
    assert [(one.mechanism, one.iterations) for one in found.scram_credential_infos] == [(info.mechanism, 8192)]
    alter(UserScramCredentialDeletion(name, info.mechanism))
    assert not can_log_in("second")
    few = UserScramCredentialUpsertion(name, ScramCredentialInfo(info.mechanism, 100), b"x")
    for refused, code in (
        (lambda: alter(UserScramCredentialDeletion(name, info.mechanism)), 91),
        (lambda: alter(few), 93),
        (lambda: admin.describe_user_scram_credentials([name])[name].result(10), 91),
    ):
        with pytest.raises(KafkaException) as caught:
            refused()
        assert caught.value.args[0].code() == code


def login(mechanism: str, name: str = "alice", password: str = "correct horse") -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SSL", None), ("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "PLAIN")],
)
def test_librdkafka_produces_and_consumes(doors: Doors, listener: str, mechanism: str | None) -> None:
    settings = doors.librdkafka(listener, **(login(mechanism) if mechanism else {}))
    topic = unique("t")
    sent = [b"%d" % number + b"x" * 50_000 for number in range(10)]
    producer = Producer({**settings, "linger.ms": 5})
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(10) == 0
    assert consumed(settings, topic, len(sent)) == sent
    assert set(producer.list_topics(topic).brokers[1].__str__().split("/")[0].split(":")[1:]) == {
        str(doors.ports[listener])
    }
