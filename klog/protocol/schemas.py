"""klog's own requests to the registry of schemas, which any broker answers from ZooKeeper.

    GetSchemas       schemas by their ids: what a reader of messages needs
    ListSubjects     subjects, their levels, versions and ids
    RegisterSchema   register a schema, look whether it is registered, or check whether it could be
    DeleteSchemas    a version, or a subject
    SetSchemaLevel   how compatible a subject's versions must be, or those of all subjects

In ``error`` 0 means done; else it is the number that the common registry answers over HTTP
(`klog.protocol.schema_errors`). A level is a text such as ``BACKWARD``.

Declared by `klog.protocol.schema`.
"""

from kio.static.primitive import i32

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response, Structure

REGISTER = "register"
FIND = "find"
CHECK = "check"


class GetSchemasRequest(Request, key=ApiKey.GET_SCHEMAS):
    ids: tuple[i32, ...]


class GotSchema(Structure):
    """``schema`` is "" with an error."""

    id: i32
    error: i32
    error_message: str | None
    type: str
    schema: str


class GetSchemasResponse(Response, key=ApiKey.GET_SCHEMAS):
    """One an id asked, in the order asked."""

    schemas: tuple[GotSchema, ...]


class ListSubjectsRequest(Request, key=ApiKey.LIST_SUBJECTS):
    """``subjects`` None: all there are. Deleted versions are listed too, marked."""

    subjects: tuple[str, ...] | None


class SubjectVersion(Structure):
    version: i32
    id: i32
    is_deleted: bool


class ListedSubject(Structure):
    """``level`` None: it follows the level of all."""

    name: str
    level: str | None
    versions: tuple[SubjectVersion, ...]


class ListSubjectsResponse(Response, key=ApiKey.LIST_SUBJECTS):
    """``level`` is that of the subjects that have none of their own. Unknown names are left out."""

    error: i32
    error_message: str | None
    level: str
    subjects: tuple[ListedSubject, ...]


class RegisterSchemaRequest(Request, key=ApiKey.REGISTER_SCHEMA):
    """``act``: register, find or check. ``deleted``: for find, among deleted versions too.

    ``version``, for check: against which one; 0 against those that the subject's level says, -1 against the latest.
    """

    act: str
    subject: str
    type: str
    schema: str
    version: i32
    deleted: bool


class FoundIncompatibility(Structure):
    """Between the schema asked about and a version there is: what a reader by one could not make of the other.

    ``path`` leads to the place in the reader's schema. ``reader``: ``new`` or ``old``, whose schema reads.
    """

    version: i32
    reader: str
    kind: str
    path: str
    message: str


class RegisterSchemaResponse(Response, key=ApiKey.REGISTER_SCHEMA):
    """``id`` and ``version`` are -1 for a check, and where nothing was registered or found."""

    error: i32
    error_message: str | None
    id: i32
    version: i32
    incompatibilities: tuple[FoundIncompatibility, ...]


class DeleteSchemasRequest(Request, key=ApiKey.DELETE_SCHEMAS):
    """``version`` 0: all of the subject; -1: the latest."""

    subject: str
    version: i32
    permanent: bool


class DeleteSchemasResponse(Response, key=ApiKey.DELETE_SCHEMAS):
    """The versions that were deleted."""

    error: i32
    error_message: str | None
    versions: tuple[i32, ...]


class SetSchemaLevelRequest(Request, key=ApiKey.SET_SCHEMA_LEVEL):
    """``subject`` None: of all that have none of their own. ``level`` None: back to the default."""

    subject: str | None
    level: str | None


class SetSchemaLevelResponse(Response, key=ApiKey.SET_SCHEMA_LEVEL):
    """The level before; None where the subject had none of its own."""

    error: i32
    error_message: str | None
    prior: str | None
