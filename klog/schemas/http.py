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
    SchemaVersionNotFound,
    SubjectNotFound,
    code_of,
    words_of,
)
from klog.schemas.registry import ALL, LATEST, ONE_PARSES, Registry, describe

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


Answer = Callable[["HttpRegistry", _Call], Any]
_ROUTES: list[tuple[str, re.Pattern[str], Answer]] = []


def _route(method: str, path: str) -> Callable[[Answer], Answer]:
    """``{}`` in the path stands for one part."""

    def register(answer: Answer) -> Answer:
        _ROUTES.append((method, re.compile(path.replace("{}", "([^/]+)") + r"/?\Z"), answer))
        return answer

    return register


class HttpRegistry:
    """A WSGI application. Thread-safe, as the registry is."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        target = environ.get(RAW_TARGET) or environ.get("PATH_INFO", "/")
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = -1
        coding = str(environ.get("HTTP_CONTENT_ENCODING") or "identity").lower()
        if environ.get("HTTP_TRANSFER_ENCODING"):
            status, answer = _failed(411, "Transfer-Encoding is not served: a body comes whole, with a Content-Length")
        elif coding != "identity":
            status, answer = _failed(415, f"Content-Encoding {coding[:20]!r} is not served: a body comes uncompressed")
        elif 0 <= length <= BODY_BYTES_MAX:
            body = environ["wsgi.input"].read(length) if length else b""
            client = str(environ.get("HTTP_USER_AGENT") or "http")
            mine = HttpRegistry(self.registry.acting(Actor(client, str(environ.get("REMOTE_ADDR") or ""))))
            status, answer = mine._respond(environ["REQUEST_METHOD"], target, body)
        else:
            status, answer = _failed(413, f"a body of at most {BODY_BYTES_MAX} bytes is taken, with its length said")
        if isinstance(answer, Iterator):
            start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
            return _array(answer)
        data = answer.text.encode() if isinstance(answer, _Text) else json.dumps(answer).encode()
        start_response(
            f"{status} {_REASONS.get(status, 'Error')}",
            [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(data)))],
        )
        return [data]

    def respond(self, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
        """The status, and what the body's JSON says. ``target`` is the path as it was sent, with its query."""
        status, answer = self._respond(method, target, body)
        return status, list(answer) if isinstance(answer, Iterator) else answer

    def _respond(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """As `respond`; an answer about all is an iterator."""
        path, _, query = target.partition("?")
        allowed = False
        for route_method, pattern, answer in _ROUTES:
            match = pattern.match(path)
            if match is None:
                continue
            allowed = True
            if route_method == method or (method == "HEAD" and route_method == "GET"):
                parts = tuple(map(unquote, match.groups()))
                words = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
                return self._answer(answer, _Call(parts, words, body))
        return _failed(405, "HTTP 405 Method Not Allowed") if allowed else _failed(404, "HTTP 404 Not Found")

    def _answer(self, answer: Answer, call: _Call) -> tuple[int, Any]:
        try:
            return 200, answer(self, call)
        except _BadRequest as error:
            return _failed(400, str(error))
        except KlogError as error:
            return _failed(code_of(error), words_of(error))
        except Exception:
            log.exception("a request to the schema registry failed: internal error")
            return _failed(500, "an error of the registry's own; its log says more")

    # --- What the routes share ------------------------------------------------------------------------------------

    def schema(self, schema_id: int) -> Schema:
        found = self.registry.schemas([schema_id])
        if schema_id not in found:
            raise SchemaNotFound(f"Schema {schema_id} not found")
        return found[schema_id]

    def subject(self, name: str, *, deleted: bool) -> Subject:
        """One that has versions; its live ones, or with ``deleted`` all."""
        found = self.registry.subjects([name])
        shown = _seen(found[0], deleted=deleted) if found else ()
        if not shown:
            raise SubjectNotFound(f"Subject '{name}' not found.")
        return Subject(name, found[0].level, versions=shown)

    def version(self, name: str, text: str, *, deleted: bool = False) -> Version:
        number = _version_number(text)
        versions = self.subject(name, deleted=deleted).versions
        if number == LATEST:
            return versions[-1]
        for one in versions:
            if one.number == number:
                return one
        raise SchemaVersionNotFound(f"Version {number} not found.")

    def shown(self, name: str, version: Version) -> dict[str, Any]:
        schema = self.schema(version.schema_id)
        return {"subject": name, "version": version.number, "id": version.schema_id, **_shown(schema)}

    def all_subjects(self) -> list[Subject]:
        with ONE_LISTS:
            return self.registry.subjects()

    def naming(self, schema_id: int, *, deleted: bool) -> list[tuple[str, int]]:
        """(subject, version) of those that name a schema."""
        self.schema(schema_id)
        return [
            (subject.name, one.number)
            for subject in self.all_subjects()
            for one in _seen(subject, deleted=deleted)
            if one.schema_id == schema_id
        ]


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    500: "Internal Server Error",
}


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


def _seen(subject: Subject, *, deleted: bool) -> tuple[Version, ...]:
    return subject.versions if deleted else subject.live


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
            raise OperationNotPermitted(f"an {name} of one's own is not served: klog gives them out")
    return kind, text


# --- Schemas by id ----------------------------------------------------------------------------------------------------


@_route("GET", "/")
def _root(face: HttpRegistry, call: _Call) -> Any:
    return {}


@_route("GET", "/schemas/types")
def _types(face: HttpRegistry, call: _Call) -> Any:
    return [AVRO]


@_route("GET", "/schemas/ids/{}")
def _by_id(face: HttpRegistry, call: _Call) -> Any:
    return _shown(face.schema(_number(call.parts[0])))


@_route("GET", "/schemas/ids/{}/schema")
def _text_by_id(face: HttpRegistry, call: _Call) -> Any:
    return _Text(face.schema(_number(call.parts[0])).text)


@_route("GET", "/schemas/ids/{}/subjects")
def _subjects_by_id(face: HttpRegistry, call: _Call) -> Any:
    found = face.naming(_number(call.parts[0]), deleted=call.flag("deleted"))
    return sorted({subject for subject, _ in found})


@_route("GET", "/schemas/ids/{}/versions")
def _versions_by_id(face: HttpRegistry, call: _Call) -> Any:
    found = face.naming(_number(call.parts[0]), deleted=call.flag("deleted"))
    return [{"subject": subject, "version": version} for subject, version in found]


@_route("GET", "/schemas")
def _schemas(face: HttpRegistry, call: _Call) -> Any:
    prefix = call.query.get("subjectPrefix", "")
    names = [one.name for one in face.all_subjects() if one.name.startswith(prefix)]
    return _each_schema(face, names, deleted=call.flag("deleted"), latest=call.flag("latestOnly"))


def _each_schema(face: HttpRegistry, names: list[str], *, deleted: bool, latest: bool) -> Iterator[dict[str, Any]]:
    for at in range(0, len(names), READ_AT_ONCE):
        for subject in face.registry.subjects(names[at : at + READ_AT_ONCE]):
            versions = _seen(subject, deleted=deleted)[-1 if latest else 0 :]
            for number in range(0, len(versions), READ_AT_ONCE):
                part = versions[number : number + READ_AT_ONCE]
                schemas = face.registry.schemas(one.schema_id for one in part)
                for one in part:
                    about = {"subject": subject.name, "version": one.number, "id": one.schema_id}
                    yield about | _shown(schemas[one.schema_id])


# --- Subjects and versions --------------------------------------------------------------------------------------------


@_route("GET", "/subjects")
def _subjects(face: HttpRegistry, call: _Call) -> Any:
    prefix = call.query.get("subjectPrefix", "")
    found = [one for one in face.all_subjects() if one.versions and one.name.startswith(prefix)]
    if call.flag("deletedOnly"):
        return [one.name for one in found if not one.live]
    return [one.name for one in found if _seen(one, deleted=call.flag("deleted"))]


@_route("POST", "/subjects/{}")
def _find(face: HttpRegistry, call: _Call) -> Any:
    kind, text = _schema_in(call)
    return face.shown(call.parts[0], face.registry.find(call.parts[0], kind, text, deleted=call.flag("deleted")))


@_route("DELETE", "/subjects/{}")
def _delete_subject(face: HttpRegistry, call: _Call) -> Any:
    return face.registry.delete(call.parts[0], ALL, permanent=call.flag("permanent"))


@_route("GET", "/subjects/{}/versions")
def _versions(face: HttpRegistry, call: _Call) -> Any:
    return [one.number for one in face.subject(call.parts[0], deleted=call.flag("deleted")).versions]


@_route("POST", "/subjects/{}/versions")
def _register(face: HttpRegistry, call: _Call) -> Any:
    kind, text = _schema_in(call)
    return {"id": face.registry.register(call.parts[0], kind, text).schema_id}


@_route("GET", "/subjects/{}/versions/{}")
def _one_version(face: HttpRegistry, call: _Call) -> Any:
    return face.shown(call.parts[0], face.version(*call.parts, deleted=call.flag("deleted")))


@_route("GET", "/subjects/{}/versions/{}/schema")
def _text_of_version(face: HttpRegistry, call: _Call) -> Any:
    return _Text(face.schema(face.version(*call.parts, deleted=call.flag("deleted")).schema_id).text)


@_route("GET", "/subjects/{}/versions/{}/referencedby")
def _referenced_by(face: HttpRegistry, call: _Call) -> Any:
    face.version(*call.parts)
    return []


@_route("DELETE", "/subjects/{}/versions/{}")
def _delete_version(face: HttpRegistry, call: _Call) -> Any:
    name, version = call.parts
    return face.registry.delete(name, _version_number(version), permanent=call.flag("permanent"))[0]


# --- Compatibility ----------------------------------------------------------------------------------------------------


@_route("POST", "/compatibility/subjects/{}/versions")
def _check_all(face: HttpRegistry, call: _Call) -> Any:
    return _checked(face, call, ALL)


@_route("POST", "/compatibility/subjects/{}/versions/{}")
def _check_one(face: HttpRegistry, call: _Call) -> Any:
    return _checked(face, call, _version_number(call.parts[1]))


def _checked(face: HttpRegistry, call: _Call, version: int) -> dict[str, Any]:
    kind, text = _schema_in(call)
    found = face.registry.check(call.parts[0], kind, text, version)
    answer: dict[str, Any] = {"is_compatible": not found}
    if call.flag("verbose"):
        answer["messages"] = [f"{one.problem.kind}: {describe(one)}" for one in found]
    return answer


@_route("GET", "/config")
def _level(face: HttpRegistry, call: _Call) -> Any:
    return {"compatibilityLevel": face.registry.level()}


@_route("PUT", "/config")
def _set_level(face: HttpRegistry, call: _Call) -> Any:
    return {"compatibility": _put_level(face, call, None)}


@_route("DELETE", "/config")
def _reset_level(face: HttpRegistry, call: _Call) -> Any:
    return {"compatibilityLevel": face.registry.set_level(None, None)}


@_route("GET", "/config/{}")
def _subject_level(face: HttpRegistry, call: _Call) -> Any:
    found = face.registry.subjects([call.parts[0]])
    if found and found[0].level is not None:
        return {"compatibilityLevel": found[0].level}
    if call.flag("defaultToGlobal"):
        return {"compatibilityLevel": face.registry.level()}
    raise NoSubjectLevel(f"Subject '{call.parts[0]}' does not have subject-level compatibility configured")


@_route("PUT", "/config/{}")
def _set_subject_level(face: HttpRegistry, call: _Call) -> Any:
    return {"compatibility": _put_level(face, call, call.parts[0])}


@_route("DELETE", "/config/{}")
def _reset_subject_level(face: HttpRegistry, call: _Call) -> Any:
    prior = face.registry.set_level(call.parts[0], None)
    if prior is None:
        raise SubjectNotFound(f"Subject '{call.parts[0]}' not found.")
    return {"compatibilityLevel": prior}


def _put_level(face: HttpRegistry, call: _Call, subject: str | None) -> str:
    level = call.json().get("compatibility")
    if not isinstance(level, str):
        raise _BadRequest('expected {"compatibility": "..."}')
    face.registry.set_level(subject, level)
    return level.upper()


# --- What there is one answer to --------------------------------------------------------------------------------------


@_route("GET", "/mode")
@_route("GET", "/mode/{}")
def _mode(face: HttpRegistry, call: _Call) -> Any:
    return {"mode": MODE}


@_route("PUT", "/mode")
@_route("PUT", "/mode/{}")
def _set_mode(face: HttpRegistry, call: _Call) -> Any:
    if call.json().get("mode") != MODE:
        raise InvalidRegistryMode(f"{MODE} is the only mode that is served")
    return {"mode": MODE}


@_route("GET", "/contexts")
def _contexts(face: HttpRegistry, call: _Call) -> Any:
    return ["."]
