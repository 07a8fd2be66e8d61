"""klog's own requests to the schema registry, which any broker answers from ZooKeeper.

    ReadSchemas      schemas by their ids, or by their text; or subjects, with their levels, versions and ids
    ChangeSchemas    register a schema, delete versions, or set a level

``error``: 0, or an error code of the common registry's HTTP API (`klog.protocol.schema_errors`). A level is a text such
as ``BACKWARD``.

Declared by `klog.protocol.schema`.
"""

from kio.static.primitive import i32

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response, Structure

REGISTER = "register"
DELETE = "delete"
LEVEL = "level"


class ReadSchemasRequest(Request, key=ApiKey.READ_SCHEMAS):
    """``ids``, ``text``: only these schemas; a text in the form that the registry stores.

    Without either: ``subjects``; None: all.
    """

    ids: tuple[i32, ...]
    text: str | None
    subjects: tuple[str, ...] | None


class RegisteredSchema(Structure):
    id: i32
    type: str
    schema: str


class SubjectVersion(Structure):
    version: i32
    id: i32
    is_deleted: bool


class ListedSubject(Structure):
    """``level`` None: the default level applies. ``error``: not 0 where the subject may not be described."""

    error: i32
    error_message: str | None
    name: str
    level: str | None
    versions: tuple[SubjectVersion, ...]


class ReadSchemasResponse(Response, key=ApiKey.READ_SCHEMAS):
    """Unknown ids, texts and subjects are missing; deleted versions are marked.

    ``level``: that of subjects without one; "" where schemas were asked for.
    """

    error: i32
    error_message: str | None
    schemas: tuple[RegisteredSchema, ...]
    level: str
    subjects: tuple[ListedSubject, ...]


class ChangeSchemasRequest(Request, key=ApiKey.CHANGE_SCHEMAS):
    """``act``: register (``type``, ``schema``), delete (``version``, ``permanent``) or level (``level``).

    ``version`` 0: all of the subject; -1: the latest. ``level`` None: back to the default. ``subject`` None, for a
    level: the default of all subjects.
    """

    act: str
    subject: str | None
    type: str
    schema: str
    version: i32
    permanent: bool
    level: str | None


class ChangeSchemasResponse(Response, key=ApiKey.CHANGE_SCHEMAS):
    """``versions``: the registered one, or the deleted ones; ``id``: that of the registered schema, else -1.

    ``prior``: the level before; None if the subject had none.
    """

    error: i32
    error_message: str | None
    id: i32
    versions: tuple[i32, ...]
    prior: str | None
