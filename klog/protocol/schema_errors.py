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


class SchemaError(RequestError, wire=42, code=RequestError.code):
    """``registry_code`` is the number."""

    registry_code: int = 42201

    def __init_subclass__(cls, *, registry_code: int) -> None:
        super().__init_subclass__(wire=42)
        cls.registry_code = registry_code


class SubjectAuthorizationFailed(SchemaError, registry_code=40301):
    pass


class SubjectNotFound(SchemaError, registry_code=40401):
    pass


class SchemaVersionNotFound(SchemaError, registry_code=40402):
    pass


class SchemaNotFound(SchemaError, registry_code=40403):
    """No schema has the id, or none of the subject has the text."""


class SubjectDeleted(SchemaError, registry_code=40404):
    """A subject is deleted already; only for good can it be deleted once more."""


class SubjectNotDeleted(SchemaError, registry_code=40405):
    """Deleting for good comes after deleting."""


class SchemaVersionDeleted(SchemaError, registry_code=40406):
    """As `SubjectDeleted`, of one version."""


class SchemaVersionNotDeleted(SchemaError, registry_code=40407):
    """As `SubjectNotDeleted`, of one version."""


class NoSubjectLevel(SchemaError, registry_code=40408):
    """A subject has no compatibility level of its own."""


class IncompatibleSchema(SchemaError, registry_code=409):
    """What one version writes, another could not read."""


class InvalidSchema(SchemaError, registry_code=42201):
    pass


class InvalidSchemaVersion(SchemaError, registry_code=42202):
    pass


class InvalidCompatibilityLevel(SchemaError, registry_code=42203):
    pass


class InvalidRegistryMode(SchemaError, registry_code=42204):
    pass


class OperationNotPermitted(SchemaError, registry_code=42205):
    pass


class InvalidSubject(SchemaError, registry_code=42208):
    pass


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
