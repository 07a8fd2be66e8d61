"""The registry over HTTP: paths, bodies and error codes as clients of the common registry know them."""

from __future__ import annotations

import gzip
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from klog.coordination.schemas import SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import PortInUse, SessionLost
from klog.net.http_server import HttpServer
from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.http import BODY_BYTES_MAX, CONTENT_TYPE, HttpRegistry
from klog.schemas.registry import ONE_PARSES, TEXT_CHARS_MAX, ZooKeeperRegistry
from tests.rows import each

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
B = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
BAD = '{"type":"record","name":"R","fields":[{"name":"c","type":"int"}]}'

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(registry: SchemaRegistry) -> Ask:
    """`ask("GET", "/subjects", body)`: (status, JSON), or (error code, message) where it is an error."""
    face = HttpRegistry(ZooKeeperRegistry(registry))

    def asking(method: str, target: str, body: Any = None) -> tuple[int, Any]:
        status, answer = face.respond(method, target, b"" if body is None else json.dumps(body).encode())
        if status == 200:
            return status, list(answer) if isinstance(answer, Iterator) else answer
        assert status == answer["error_code"] // (100 if answer["error_code"] > 999 else 1)
        return answer["error_code"], answer["message"]

    return asking


def post(ask: Ask, subject: str, schema: str) -> tuple[int, Any]:
    return ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})


def test_schemas_are_registered_and_found(ask: Ask) -> None:
    assert ask("GET", "/") == (200, {})
    assert ask("GET", "/subjects") == (200, [])
    assert post(ask, "s", A) == (200, {"id": 1})
    assert post(ask, "s", A) == (200, {"id": 1})
    assert post(ask, "s", B) == (200, {"id": 2})
    assert post(ask, "a/b ü", B) == (200, {"id": 2})
    assert ask("GET", "/subjects") == (200, ["a/b ü", "s"])
    assert ask("GET", "/subjects?subjectPrefix=s") == (200, ["s"])
    assert ask("GET", "/subjects/s/versions") == (200, [1, 2])
    first = {"subject": "s", "version": 1, "id": 1, "schema": A}
    assert ask("GET", "/subjects/s/versions/1") == (200, first)
    assert ask("POST", "/subjects/s", {"schema": f" {A} "}) == (200, first)
    assert ask("GET", "/subjects/s/versions/latest") == (200, {"subject": "s", "version": 2, "id": 2, "schema": B})
    assert ask("GET", "/subjects/s/versions/-1") == ask("GET", "/subjects/s/versions/latest")
    assert ask("GET", "/subjects/a%2Fb%20%C3%BC/versions") == (200, [1])
    assert ask("GET", "/schemas/ids/1") == (200, {"schema": A})
    assert ask("GET", "/schemas/ids/2/subjects") == (200, ["a/b ü", "s"])
    assert ask("GET", "/schemas/ids/2/versions")[1] == [
        {"subject": "a/b ü", "version": 1},
        {"subject": "s", "version": 2},
    ]
    assert ask("GET", "/schemas/ids/1/schema")[1].text == A
    assert ask("GET", "/subjects/s/versions/2/schema")[1].text == B
    assert ask("GET", "/subjects/s/versions/2/referencedby") == (200, [])
    assert ask("GET", "/schemas/types") == (200, ["AVRO"])
    assert [one["id"] for one in ask("GET", "/schemas")[1]] == [2, 1, 2]
    assert [one["version"] for one in ask("GET", "/schemas?latestOnly=true&subjectPrefix=s")[1]] == [2]
    assert ask("GET", "/mode") == ask("GET", "/mode/s") == ask("PUT", "/mode", {"mode": "READWRITE"})
    assert ask("GET", "/contexts") == (200, ["."])


@each(
    ("method", "target", "body", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/schemas/ids/99", None, 40403),
        ("GET", "/schemas/ids/x", None, 40403),
        ("GET", "/schemas/ids/99999999999", None, 40403),
        ("GET", f"/schemas/ids/{'9' * 5000}", None, 40403),
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/s/versions/9", None, 40402),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/first", None, 42202),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("DELETE", "/subjects/none", None, 40401),
        ("DELETE", "/subjects/s?permanent=true", None, 40405),
        ("DELETE", "/subjects/s/versions/9", None, 40402),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407),
        ("POST", "/subjects/none", {"schema": A}, 40401),
        ("POST", "/subjects/s", {"schema": B}, 40403),
        ("POST", "/subjects/s/versions", {"schema": BAD}, 409),
        ("POST", "/subjects/s/versions", {"schema": "{}"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/s/versions", {}, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "schemaType": "JSON"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "references": [{"name": "x"}]}, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "ruleSet": {"domainRules": [{}]}}, 42201),
        ("POST", "/subjects/s/versions", {"schema": B, "id": 7}, 42205),
        ("POST", "/subjects/" + "n" * 256 + "/versions", {"schema": A}, 42208),
        ("POST", "/subjects/s/versions", ["schema"], 400),
        ("POST", "/compatibility/subjects/none/versions/latest", {"schema": A}, 40401),
        ("POST", "/compatibility/subjects/s/versions/9", {"schema": A}, 40402),
        ("PUT", "/config", {"compatibility": "SIDEWARD"}, 42203),
        ("PUT", "/config", {}, 400),
        ("GET", "/config/s", None, 40408),
        ("DELETE", "/config/s", None, 40401),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42204),
    ],
)  # fmt: skip
def test_what_cannot_be_is_answered_with_the_common_codes(
    ask: Ask, method: str, target: str, body: Any, code: int
) -> None:
    post(ask, "s", A)
    found, message = ask(method, target, body)
    assert (found, bool(message)) == (code, True)
    assert ask("GET", "/schemas")[1] == [{"subject": "s", "version": 1, "id": 1, "schema": A}], "nothing was changed"


def test_compatibility_is_checked_without_registering(ask: Ask) -> None:
    assert ask("POST", "/compatibility/subjects/s/versions", {"schema": A}) == (200, {"is_compatible": True})
    post(ask, "s", A)
    assert ask("POST", "/compatibility/subjects/s/versions/latest", {"schema": B}) == (200, {"is_compatible": True})
    status, told = ask("POST", "/compatibility/subjects/s/versions/1?verbose=true", {"schema": BAD})
    assert status == 200 and not told["is_compatible"]
    assert [one.split(":")[0] for one in told["messages"]] == ["READER_FIELD_MISSING_DEFAULT_VALUE"]
    assert "/c" in told["messages"][0]
    assert ask("PUT", "/config/s", {"compatibility": "none"}) == (200, {"compatibility": "NONE"})
    assert ask("POST", "/compatibility/subjects/s/versions/1", {"schema": BAD}) == (200, {"is_compatible": True})


def test_levels(ask: Ask) -> None:
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert ask("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    assert ask("PUT", "/config/s", {"compatibility": "FORWARD"})[0] == 200
    assert ask("GET", "/config/s") == (200, {"compatibilityLevel": "FORWARD"})
    assert ask("GET", "/subjects?deleted=true") == (200, []), "a level makes no subject"
    assert ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "FORWARD"})
    assert ask("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


def test_deleting_hides_first_and_takes_away_then(ask: Ask) -> None:
    post(ask, "s", A)
    post(ask, "s", B)
    assert ask("DELETE", "/subjects/s/versions/latest") == (200, 2)
    assert ask("DELETE", "/subjects/s/versions/2")[0] == 40406
    assert ask("GET", "/subjects/s/versions") == (200, [1])
    assert ask("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert ask("GET", "/subjects/s/versions/2")[0] == 40402
    assert ask("GET", "/subjects/s/versions/2?deleted=true")[0] == 200
    assert ask("DELETE", "/subjects/s/versions/2?permanent=true") == (200, 2)
    assert ask("GET", "/schemas/ids/2") == (200, {"schema": B}), "messages name it still"
    assert ask("DELETE", "/subjects/s") == (200, [1])
    assert ask("DELETE", "/subjects/s")[0] == 40404
    assert ask("GET", "/subjects") == (200, [])
    assert ask("GET", "/subjects?deleted=true") == ask("GET", "/subjects?deletedOnly=true") == (200, ["s"])
    assert ask("POST", "/subjects/s?deleted=true", {"schema": A})[1]["version"] == 1
    assert ask("DELETE", "/subjects/s?permanent=true") == (200, [1])
    assert ask("GET", "/subjects?deleted=true") == (200, [])


# --- On a socket ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(registry: SchemaRegistry) -> Iterator[HttpServer]:
    face = HttpRegistry(ZooKeeperRegistry(registry))
    server = HttpServer.open(face, "127.0.0.1", 0, what="the registry", flag="--port PORT")
    yield server
    server.close()


def test_bytes_and_headers(server: HttpServer) -> None:
    body = json.dumps({"schema": A}).encode()
    asked = urllib.request.Request(
        f"http://{server.address}/subjects/a%2Fb/versions", body, {"Content-Type": CONTENT_TYPE}
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
        assert answer.read() == b'{"id": 1}'
    with urllib.request.urlopen(f"http://{server.address}/subjects", timeout=10) as answer:
        assert json.load(answer) == ["a/b"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{server.address}/schemas/ids/7", timeout=10)
    assert (refused.value.code, json.load(refused.value)["error_code"]) == (404, 40403)
    refused.value.close()


BOMB = gzip.compress(bytes(10_000_000))


@each(
    ("head", "body", "status"),
    [
        *((f"POST /subjects/s HTTP/1.0\r\nContent-Length: {length}", b"", 413)
          for length in (BODY_BYTES_MAX + 1, "-1", "many", "+1", "1_0", "9" * 5000)),
        ("POST /subjects/s HTTP/1.0\r\nContent-Length: 2\r\nContent-Length: 3", b"{}}", 400),
        # Its rest is not waited for: it is not unpacked.
        (f"POST /subjects/s HTTP/1.0\r\nContent-Encoding: gzip\r\nContent-Length: {len(BOMB)}", BOMB[:100], 415),
        ("POST /subjects/s HTTP/1.1\r\nTransfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n", 411),
        ("POST /subjects/s HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", b"2\r\n{}\r\n0\r\n\r\n", 411),
        # RFC 9112, 3.2.2: a server must take a whole URL, as proxies send it.
        ("GET http://registry:8081/schemas/types?a=b HTTP/1.1\r\nHost: other", b"", 200),
        ("GET HTTPS://[::1]:8081/schemas/types?a=b HTTP/1.1\r\nHost: other", b"", 200),
        ("GET http://user@registry/schemas/types?a=b HTTP/1.1\r\nHost: other", b"", 200),
    ],
)  # fmt: skip
def test_requests_that_stock_clients_do_not_send(server: HttpServer, head: str, body: bytes, status: int) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(head.encode() + b"\r\n\r\n" + body)
        assert peer.recv(100).startswith(b"HTTP/1.0 %d " % status)


def test_a_port_in_use_is_said(server: HttpServer, registry: SchemaRegistry) -> None:
    port = int(server.address.split(":")[1])
    with pytest.raises(PortInUse, match=r"registry.*127\."):
        HttpServer.open(
            HttpRegistry(ZooKeeperRegistry(registry)), "127.0.0.1", port, what="the registry", flag="--port PORT"
        )


def test_without_zookeeper_it_says_that_it_cannot(connect: Callable[..., ZooKeeper]) -> None:
    session = connect()
    kept = SchemaRegistry(session)
    made = ZooKeeperRegistry(kept).register("s", "AVRO", A)
    kept.schemas([made.schema_id])
    session.stop()
    face = HttpRegistry(ZooKeeperRegistry(kept))
    assert face.respond("GET", "/schemas/ids/1") == (200, {"schema": A}), "what it has seen it knows"
    status, answer = face.respond("GET", "/subjects")
    assert (status, answer["error_code"], SessionLost.retriable) == (500, 50002, True)


def test_one_body_is_parsed_at_a_time(ask: Ask) -> None:
    """A parser holds the interpreter: many at once leave nothing of it for the broker's event loop."""
    with ThreadPoolExecutor(1) as threads:
        with ONE_PARSES:
            asked = threads.submit(post, ask, "s", A)
            with pytest.raises(TimeoutError):
                asked.result(0.2)
        assert asked.result(10) == (200, {"id": 1})


def test_a_schema_is_bounded_before_it_is_parsed(registry: SchemaRegistry) -> None:
    with pytest.raises(InvalidSchema, match=str(TEXT_CHARS_MAX)):
        ZooKeeperRegistry(registry).register("s", "AVRO", '"int"' + " " * TEXT_CHARS_MAX)
