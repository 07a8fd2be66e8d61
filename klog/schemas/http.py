"""The registry of schemas over HTTP, in the common registry's shape, so that stock serializers work with it.

`HttpRegistry` is a WSGI application over any `Registry`. Paths, bodies, content type and error codes are those of the
common registry's API, version 1. Subjects in paths are percent-encoded, ``/`` too.

Left out, and refused with words: references between schemas, metadata and rules, import of ids (a schema gets the id
that klog gives it), modes other than READWRITE, types other than AVRO. ``normalize`` changes nothing: equal schemas are
one text already.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from klog.coordination.acts import Actor
from klog.coordination.schemas import AVRO, Schema, Subject, Version
from klog.errors import KlogError
from klog.net.http_server import RAW_TARGET
from klog.protocol.schema_errors import (
    InvalidRegistryMode,
    InvalidSchema,
    InvalidSchemaVersion,
    NoSubjectLevel,
    OperationNotPermitted,
    SchemaNotFound,
    code_of,
    words_of,
)
from klog.schemas.registry import ALL, LATEST, ONE_PARSES, Registry, describe, no_subject

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_BYTES_MAX: Final = 1024 * 1024
"""Four times the bytes of the largest schema that ZooKeeper takes. Parsing holds the interpreter."""
MODE: Final = "READWRITE"
DIGITS_MAX: Final = 20
"""Of a number in a path, with zeros in front."""
SHOWN_MAX: Final = 100
READ_AT_ONCE: Final = 4
"""Subjects, and schemas, of an answer about all: the next are read when these were taken."""
ONE_LISTS = threading.Lock()
"""Held while all subjects are read."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A request: the parts of its path that the route left open, its query's last words, and its JSON."""

    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def json(self) -> dict[str, Any]:
        try:
            with ONE_PARSES:
                found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _BadRequest("the body is not a JSON object")
        return found


class _BadRequest(Exception):
    """HTTP 400."""


class _Text(NamedTuple):
    """A body that is JSON already."""

    text: str


class HttpRegistry:
    """A WSGI application. Thread-safe, as the registry is."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        target = environ.get(RAW_TARGET) or environ.get("PATH_INFO", "/")
        told = environ.get("CONTENT_LENGTH") or "0"
        length = int(told) if re.fullmatch("[0-9]{1,12}", told) else -1
        coding = str(environ.get("HTTP_CONTENT_ENCODING") or "identity").lower()
        if environ.get("HTTP_TRANSFER_ENCODING"):
            status, answer = _failed(411, "Transfer-Encoding is not served: a body comes whole, with a Content-Length")
        elif coding != "identity":
            status, answer = _failed(415, f"Content-Encoding {coding[:20]!r} is not served: a body comes uncompressed")
        elif 0 <= length <= BODY_BYTES_MAX:
            body = environ["wsgi.input"].read(length) if length else b""
            client = str(environ.get("HTTP_USER_AGENT") or "http")
            mine = HttpRegistry(self.registry.acting(Actor(client, str(environ.get("REMOTE_ADDR") or ""))))
            status, answer = mine.respond(environ["REQUEST_METHOD"], target, body)
        else:
            status, answer = _failed(413, f"a body of at most {BODY_BYTES_MAX} bytes is taken, with its length said")
        if isinstance(answer, Iterator):
            start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
            return _array(answer)
        data = answer.text.encode() if isinstance(answer, _Text) else json.dumps(answer).encode()
        start_response(
            f"{status} {HTTPStatus(status).phrase}",
            [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(data)))],
        )
        return [data]

    def respond(self, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
        """The status, and what the body's JSON says; where it is about all, an iterator of the items of an array.

        ``target`` is the path as it was sent, with its query.
        """
        path, _, query = target.partition("?")
        for pattern, answers in _ROUTES:
            match = pattern.match(path)
            if match is None:
                continue
            answer = answers.get("GET" if method == "HEAD" else method)
            if answer is None:
                return _failed(405, "HTTP 405 Method Not Allowed")
            words = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
            return self._answer(answer, _Call(tuple(map(unquote, match.groups())), words, body))
        return _failed(404, "HTTP 404 Not Found")

    def _answer(self, answer: _Answer, call: _Call) -> tuple[int, Any]:
        try:
            return 200, answer(self, call)
        except _BadRequest as error:
            return _failed(400, str(error))
        except KlogError as error:
            return _failed(code_of(error), words_of(error))
        except Exception:
            log.exception("a request to the schema registry failed: internal error")
            return _failed(500, "an error of the registry's own; its log says more")

    # --- Answers --------------------------------------------------------------------------------------------------

    def all_subjects(self, call: _Call) -> list[Subject]:
        prefix = call.query.get("subjectPrefix", "")
        with ONE_LISTS:
            found = self.registry.subjects()
        return [one for one in found if one.name.startswith(prefix)]

    def by_id(self, call: _Call) -> Any:
        return _shown(self.registry.schema(_number(call.parts[0])))

    def text_by_id(self, call: _Call) -> Any:
        return _Text(self.registry.schema(_number(call.parts[0])).text)

    def naming(self, call: _Call) -> list[dict[str, Any]]:
        """The versions that name a schema."""
        schema = self.registry.schema(_number(call.parts[0]))
        return [
            {"subject": subject.name, "version": one.number}
            for subject in self.all_subjects(call)
            for one in _seen(subject, call)
            if one.schema_id == schema.schema_id
        ]

    def subjects_naming(self, call: _Call) -> Any:
        return sorted({one["subject"] for one in self.naming(call)})

    def schemas(self, call: _Call) -> Iterator[dict[str, Any]]:
        names = [one.name for one in self.all_subjects(call)]
        return self._each_schema(names, call)  # an iterator; the subjects are read at once

    def _each_schema(self, names: list[str], call: _Call) -> Iterator[dict[str, Any]]:
        for at in range(0, len(names), READ_AT_ONCE):
            for subject in self.registry.subjects(names[at : at + READ_AT_ONCE]):
                versions = _seen(subject, call)[-1 if call.flag("latestOnly") else 0 :]
                for number in range(0, len(versions), READ_AT_ONCE):
                    part = versions[number : number + READ_AT_ONCE]
                    schemas = self.registry.schemas(one.schema_id for one in part)
                    for one in part:
                        yield _about(subject.name, one) | _shown(schemas[one.schema_id])

    def subjects(self, call: _Call) -> Any:
        found = [one for one in self.all_subjects(call) if one.versions]
        if call.flag("deletedOnly"):
            return [one.name for one in found if not one.live]
        return [one.name for one in found if _seen(one, call)]

    def find(self, call: _Call) -> Any:
        (name,) = call.parts
        found = self.registry.find(name, *_schema_in(call), deleted=call.flag("deleted"))
        return _about(name, found) | _shown(self.registry.schema(found.schema_id))

    def delete_subject(self, call: _Call) -> Any:
        return self.registry.delete(call.parts[0], ALL, permanent=call.flag("permanent"))

    def versions(self, call: _Call) -> Any:
        return [one.number for one in self.registry.versions(call.parts[0], deleted=call.flag("deleted"))]

    def register(self, call: _Call) -> Any:
        return {"id": self.registry.register(call.parts[0], *_schema_in(call)).schema_id}

    def _version(self, call: _Call) -> Version:
        name, number = call.parts
        return self.registry.version(name, _version_number(number), deleted=call.flag("deleted"))

    def version(self, call: _Call) -> Any:
        found = self._version(call)
        return _about(call.parts[0], found) | _shown(self.registry.schema(found.schema_id))

    def text_of_version(self, call: _Call) -> Any:
        return _Text(self.registry.schema(self._version(call).schema_id).text)

    def referenced_by(self, call: _Call) -> Any:
        self._version(call)
        return []

    def delete_version(self, call: _Call) -> Any:
        name, number = call.parts
        return self.registry.delete(name, _version_number(number), permanent=call.flag("permanent"))[0]

    def check(self, call: _Call) -> Any:
        version = _version_number(call.parts[1]) if len(call.parts) > 1 else ALL
        found = self.registry.check(call.parts[0], *_schema_in(call), version)
        answer: dict[str, Any] = {"is_compatible": not found}
        if call.flag("verbose"):
            answer["messages"] = [f"{one.kind}: {describe(one)}" for one in found]
        return answer

    def level(self, call: _Call) -> Any:
        if not call.parts:
            return {"compatibilityLevel": self.registry.level()}
        (name,) = call.parts
        own = self.registry.subject(name).level
        if own is None and not call.flag("defaultToGlobal"):
            raise NoSubjectLevel(f"subject {name!r} has no compatibility level of its own")
        return {"compatibilityLevel": own or self.registry.level()}

    def set_level(self, call: _Call) -> Any:
        level = call.json().get("compatibility")
        if not isinstance(level, str):
            raise _BadRequest('expected {"compatibility": "..."}')
        self.registry.set_level(call.parts[0] if call.parts else None, level)
        return {"compatibility": level.upper()}

    def reset_level(self, call: _Call) -> Any:
        prior = self.registry.set_level(call.parts[0] if call.parts else None, None)
        if prior is None:
            raise no_subject(call.parts[0])
        return {"compatibilityLevel": prior}

    def set_mode(self, call: _Call) -> Any:
        if call.json().get("mode") != MODE:
            raise InvalidRegistryMode(f"{MODE} is the only mode that is served")
        return {"mode": MODE}


_Answer = Callable[[HttpRegistry, _Call], Any]
_H = HttpRegistry


def _always(answer: Any) -> _Answer:
    return lambda face, call: answer


_MODE: dict[str, _Answer] = {"GET": _always({"mode": MODE}), "PUT": _H.set_mode}
_LEVEL: dict[str, _Answer] = {"GET": _H.level, "PUT": _H.set_level, "DELETE": _H.reset_level}
_SERVED: Final[dict[str, dict[str, _Answer]]] = {
    "/": {"GET": _always({})},
    "/schemas": {"GET": _H.schemas},
    "/schemas/types": {"GET": _always([AVRO])},
    "/schemas/ids/{}": {"GET": _H.by_id},
    "/schemas/ids/{}/schema": {"GET": _H.text_by_id},
    "/schemas/ids/{}/subjects": {"GET": _H.subjects_naming},
    "/schemas/ids/{}/versions": {"GET": _H.naming},
    "/subjects": {"GET": _H.subjects},
    "/subjects/{}": {"POST": _H.find, "DELETE": _H.delete_subject},
    "/subjects/{}/versions": {"GET": _H.versions, "POST": _H.register},
    "/subjects/{}/versions/{}": {"GET": _H.version, "DELETE": _H.delete_version},
    "/subjects/{}/versions/{}/schema": {"GET": _H.text_of_version},
    "/subjects/{}/versions/{}/referencedby": {"GET": _H.referenced_by},
    "/compatibility/subjects/{}/versions": {"POST": _H.check},
    "/compatibility/subjects/{}/versions/{}": {"POST": _H.check},
    "/config": _LEVEL,
    "/config/{}": _LEVEL,
    "/mode": _MODE,
    "/mode/{}": _MODE,
    "/contexts": {"GET": _always(["."])},
}
"""Paths, in which ``{}`` stands for one part, and their methods."""
_ROUTES: Final = [(re.compile(path.replace("{}", "([^/]+)") + r"/?\Z"), answers) for path, answers in _SERVED.items()]


def _array(items: Iterator[Any]) -> Iterator[bytes]:
    """JSON, a piece an item."""
    before = "["
    for one in items:
        yield f"{before}{json.dumps(one)}".encode()
        before = ", "
    yield b"[]" if before == "[" else b"]"


def _failed(code: int, message: str) -> tuple[int, dict[str, Any]]:
    """A code's first three digits are the status."""
    return (code if code < 1000 else code // 100), {"error_code": code, "message": message}


def _seen(subject: Subject, call: _Call) -> tuple[Version, ...]:
    return subject.versions if call.flag("deleted") else subject.live


def _about(name: str, version: Version) -> dict[str, Any]:
    return {"subject": name, "version": version.number, "id": version.schema_id}


def _shown(schema: Schema) -> dict[str, Any]:
    """Of Avro the type is not said, as in the common registry's answers."""
    return {"schema": schema.text} if schema.kind == AVRO else {"schemaType": schema.kind, "schema": schema.text}


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or int(text) >= 2**31:
        raise SchemaNotFound(f"Schema {text[:SHOWN_MAX]} not found")
    return int(text)


def _version_number(text: str) -> int:
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or not 0 < int(text) < 2**31:
        raise InvalidSchemaVersion(
            f"The specified version '{text[:SHOWN_MAX]}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"'
        )
    return int(text)


def _schema_in(call: _Call) -> tuple[str, str]:
    """The type and the text of the schema that a body holds."""
    body = call.json()
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str) or not text.strip():
        raise InvalidSchema("Empty schema")
    if not isinstance(kind, str):
        raise _BadRequest("schemaType is not a string")
    if body.get("references"):
        raise InvalidSchema("references to other schemas are not served: define every type in the schema itself")
    for name in ("metadata", "ruleSet"):
        if body.get(name):
            raise InvalidSchema(f"{name} is not served: a schema alone is kept")
    for name in ("id", "version"):
        if isinstance(body.get(name), int) and body[name] > 0:
            raise OperationNotPermitted(f"klog assigns the {name}: leave it out of the request")
    return kind, text
