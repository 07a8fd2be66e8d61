"""Kafka's client properties about security: both spellings, what excludes what, and that no secret shows."""

from __future__ import annotations

import pickle

import pytest

from klog.client.security_files import as_librdkafka
from klog.client.servers import Servers, librdkafka_servers, more_servers, security_of
from klog.errors import InvalidConfig, UsageError
from klog.security.client_security import OPEN, SECRETS, client_security
from tests.rows import each

SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
LINE = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="s;e=c ret";'
JAVA = {**SCRAM, "sasl.jaas.config": LINE, "ssl.truststore.certificates": "PEM-A"}
RDKAFKA = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": 'al"ice',
    "sasl.password": "s;e=c ret",
    "ssl.ca.pem": "PEM-A",
}


def test_both_spellings_say_the_same() -> None:
    found = client_security(JAVA, "a")
    assert found == client_security(RDKAFKA, "b")
    assert (found.username, found.password, found.authorities) == ('al"ice', "s;e=c ret", "PEM-A")
    assert found.is_encrypted and found.is_authenticated and found.checks_host
    assert client_security(found.properties(), "c") == found


@each("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_what_travels_says_the_same_again(protocol: str) -> None:
    given = {**RDKAFKA, "security.protocol": protocol, "ssl.endpoint.identification.algorithm": ""}
    given |= (
        {"ssl.certificate.pem": "C", "ssl.key.pem": "K", "ssl.key.password": "kp"}
        if protocol != "SASL_PLAINTEXT"
        else {}
    )
    found = client_security(given, "test")
    again = client_security(found.properties(), "test")
    assert again.properties() == found.properties()
    assert pickle.loads(pickle.dumps(found)) == found


@each("given", [{}, {"security.protocol": ""}, {"security.protocol": "plaintext", "sasl.mechanism": "X"}])
def test_an_open_cluster_needs_nothing(given: dict[str, str]) -> None:
    assert client_security(given, "test") is OPEN
    assert OPEN.properties() == {}


@each(
    ("given", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        (SCRAM, "sasl.username"),
        ({**SCRAM, "sasl.jaas.config": "nonsense"}, "sasl.jaas.config"),
        ({**SCRAM, "sasl.jaas.config": 'm required username="a"'}, "sasl.jaas.config"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "K"}, "ssl.keystore.certificate.chain"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "C"}, "ssl.keystore.key"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"}, "ssl.endpoint"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as error:
        client_security(given, "client.properties")
    assert named in error.value.message and "client.properties" in error.value.message


def test_no_secret_is_shown() -> None:
    planted = {name: f"planted-{name}" for name in SECRETS} | {"sasl.username": "alice", "ssl.certificate.pem": "C"}
    planted.pop("sasl.jaas.config")
    found = client_security({**SCRAM, **planted}, "test")
    assert "planted" not in repr(found) and "alice" in repr(found)
    servers = Servers("h:1,g:2", found)
    assert "planted" not in f"{servers} {servers!r}"


def test_servers_carry_it() -> None:
    found = client_security(RDKAFKA, "test")
    servers = Servers("h:1,g:2", found)
    assert servers == "h:1,g:2" and security_of(servers) is found
    assert security_of("h:1") is OPEN and librdkafka_servers("h:1") == {"bootstrap.servers": "h:1"}
    more = more_servers(servers, ["g:2", "f:3"])
    assert more == "h:1,g:2,f:3" and security_of(more) is found
    assert security_of(pickle.loads(pickle.dumps(servers))) == found
    assert librdkafka_servers(servers)["sasl.password"] == "s;e=c ret"


BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"


def test_a_token_is_in_a_file_or_printed() -> None:
    found = client_security({**BEARER, URL: "file:///run/a%20b/token"}, "test")
    assert (found.token_file, found.username) == ("/run/a b/token", "")
    assert client_security(found.properties(), "again") == found
    assert found.properties()[URL] == "file:///run/a%20b/token"
    printed = client_security(BEARER, "test", ("print-token", "x"))
    assert (printed.token_file, printed.token_command) == (None, ("print-token", "x"))
    assert client_security(SCRAM | JAVA, "test", ("print-token",)).token_command == ()
    with pytest.raises(UsageError):
        printed.properties()


@each(
    "url",
    [
        "",
        "https://login.example/token",
        "file://host/token",
        "token",
        "file:token",
        "file:///a?b",
        "file:///%00",
        "http://[",
    ],
)
def test_tokens_that_klog_does_not_fetch(url: str) -> None:
    with pytest.raises(UsageError, match=URL.replace(".", r"\.")):
        client_security({**BEARER, URL: url}, "test")


def test_a_callback_and_a_file_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match="oauth_cb"):
        as_librdkafka({**BEARER, URL: "file:///token", "oauth_cb": print}, "test")
