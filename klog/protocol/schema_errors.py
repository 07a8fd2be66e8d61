"""Errors of the schema registry, with the error codes of the common registry's HTTP API.

The first three digits of a code are the HTTP status.
"""

from __future__ import annotations

from klog.errors import KlogError, PolicyViolation, RequestError, TimedOut, ZooKeeperError

STORE_FAILED = 50001
"""ZooKeeper refuses."""
TIMED_OUT = 50002
"""ZooKeeper does not answer."""
NO_ROOM = 50701
"""ZooKeeper keeps too much already (rule P2)."""


class SchemaError(RequestError):
    """``registry_code`` is the number."""

    wire = 42
    code = RequestError.code
    registry_code: int = 42201


class SubjectAuthorizationFailed(SchemaError):
    registry_code = 40301


class SubjectNotFound(SchemaError):
    registry_code = 40401


class SchemaVersionNotFound(SchemaError):
    registry_code = 40402


class SchemaNotFound(SchemaError):
    """No schema has the id, or none of the subject has the text."""

    registry_code = 40403


class SubjectDeleted(SchemaError):
    """A subject is deleted already; only for good can it be deleted once more."""

    registry_code = 40404


class SubjectNotDeleted(SchemaError):
    """Deleting for good comes after deleting."""

    registry_code = 40405


class SchemaVersionDeleted(SchemaError):
    """As `SubjectDeleted`, of one version."""

    registry_code = 40406


class SchemaVersionNotDeleted(SchemaError):
    """As `SubjectNotDeleted`, of one version."""

    registry_code = 40407


class NoSubjectLevel(SchemaError):
    """A subject has no compatibility level of its own."""

    registry_code = 40408


class IncompatibleSchema(SchemaError):
    """What one version writes, another could not read."""

    registry_code = 409


class InvalidSchema(SchemaError):
    registry_code = 42201


class InvalidSchemaVersion(SchemaError):
    registry_code = 42202


class InvalidCompatibilityLevel(SchemaError):
    registry_code = 42203


class InvalidRegistryMode(SchemaError):
    registry_code = 42204


class OperationNotPermitted(SchemaError):
    registry_code = 42205


class InvalidSubject(SchemaError):
    registry_code = 42208


def code_of(error: KlogError) -> int:
    """The number for an error on the wire."""
    if isinstance(error, SchemaError):
        return error.registry_code
    if isinstance(error, PolicyViolation):
        return NO_ROOM
    return TIMED_OUT if error.retriable else STORE_FAILED


def words_of(error: KlogError) -> str:
    """Its message with what to do about it: one text is all that the wire carries."""
    return error.message if error.hint is None else f"{error.message} ({error.hint})"


def error_of(code: int, message: str | None) -> KlogError:
    """The error of a number on the wire."""
    text = message or f"the registry of schemas answers error {code}"
    known: dict[int, type[KlogError]] = {one.registry_code: one for one in SchemaError.__subclasses__()}
    kind: type[KlogError] = {**known, TIMED_OUT: TimedOut, NO_ROOM: PolicyViolation}.get(code, ZooKeeperError)
    return kind(text)
