"""klog's own requests to the registry of schemas, which any broker answers from ZooKeeper.

    GetSchemas       schemas by their ids: what a reader of messages needs
    ListSubjects     subjects, their levels, versions and ids
    RegisterSchema   register a schema, look whether it is registered, or check whether it could be
    DeleteSchemas    a version, or a subject
    SetSchemaLevel   how compatible a subject's versions have to be, or those of all subjects

In ``error`` 0 means done; else it is the number that the common registry answers over HTTP
(`klog.protocol.schema_errors`). A level is a text such as ``BACKWARD``.

In the style of `own`: version 0, flexible. Annotations are evaluated here on purpose: kio reads the fields' types.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from kio.static.primitive import i16, i32

from klog.protocol.own import _of, _Request, _Response

GET_SCHEMAS = 10040
LIST_SUBJECTS = 10041
REGISTER_SCHEMA = 10042
DELETE_SCHEMAS = 10043
SET_SCHEMA_LEVEL = 10044

REGISTER = "register"
FIND = "find"
CHECK = "check"


@dataclass(frozen=True, kw_only=True)
class GetSchemasRequest(_Request):
    __api_key__: ClassVar[i16] = i16(GET_SCHEMAS)
    ids: tuple[i32, ...] = _of("int32")


@dataclass(frozen=True, kw_only=True)
class GotSchema(_Response):
    """``schema`` is "" with an error."""

    __api_key__: ClassVar[i16] = i16(GET_SCHEMAS)
    id: i32 = _of("int32")
    error: i32 = _of("int32")
    error_message: str | None = _of("string")
    type: str = _of("string")
    schema: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class GetSchemasResponse(_Response):
    """One an id asked, in the order asked."""

    __api_key__: ClassVar[i16] = i16(GET_SCHEMAS)
    schemas: tuple[GotSchema, ...]


@dataclass(frozen=True, kw_only=True)
class ListSubjectsRequest(_Request):
    """``subjects`` None: all there are. Deleted versions are told as well, marked."""

    __api_key__: ClassVar[i16] = i16(LIST_SUBJECTS)
    subjects: tuple[str, ...] | None = _of("string")


@dataclass(frozen=True, kw_only=True)
class SubjectVersion(_Response):
    __api_key__: ClassVar[i16] = i16(LIST_SUBJECTS)
    version: i32 = _of("int32")
    id: i32 = _of("int32")
    is_deleted: bool = _of("bool")


@dataclass(frozen=True, kw_only=True)
class ListedSubject(_Response):
    """``level`` None: it follows the level of all."""

    __api_key__: ClassVar[i16] = i16(LIST_SUBJECTS)
    name: str = _of("string")
    level: str | None = _of("string")
    versions: tuple[SubjectVersion, ...]


@dataclass(frozen=True, kw_only=True)
class ListSubjectsResponse(_Response):
    """``level`` is that of the subjects that have none of their own. A name that nobody knows is no subject here."""

    __api_key__: ClassVar[i16] = i16(LIST_SUBJECTS)
    error: i32 = _of("int32")
    error_message: str | None = _of("string")
    level: str = _of("string")
    subjects: tuple[ListedSubject, ...]


@dataclass(frozen=True, kw_only=True)
class RegisterSchemaRequest(_Request):
    """``act``: register, find or check. ``deleted``: for find, among deleted versions too.

    ``version``, for check: against which one; 0 against those that the subject's level says, -1 against the latest.
    """

    __api_key__: ClassVar[i16] = i16(REGISTER_SCHEMA)
    act: str = _of("string")
    subject: str = _of("string")
    type: str = _of("string")
    schema: str = _of("string")
    version: i32 = _of("int32")
    deleted: bool = _of("bool")


@dataclass(frozen=True, kw_only=True)
class FoundIncompatibility(_Response):
    """Between the schema asked about and a version there is: what a reader by one could not make of the other.

    ``path`` leads to the place in the reader's schema. ``reader``: ``new`` or ``old``, whose schema reads.
    """

    __api_key__: ClassVar[i16] = i16(REGISTER_SCHEMA)
    version: i32 = _of("int32")
    reader: str = _of("string")
    kind: str = _of("string")
    path: str = _of("string")
    message: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class RegisterSchemaResponse(_Response):
    """``id`` and ``version`` are -1 for a check, and where nothing was registered or found."""

    __api_key__: ClassVar[i16] = i16(REGISTER_SCHEMA)
    error: i32 = _of("int32")
    error_message: str | None = _of("string")
    id: i32 = _of("int32")
    version: i32 = _of("int32")
    incompatibilities: tuple[FoundIncompatibility, ...]


@dataclass(frozen=True, kw_only=True)
class DeleteSchemasRequest(_Request):
    """``version`` 0: all of the subject; -1: the latest."""

    __api_key__: ClassVar[i16] = i16(DELETE_SCHEMAS)
    subject: str = _of("string")
    version: i32 = _of("int32")
    permanent: bool = _of("bool")


@dataclass(frozen=True, kw_only=True)
class DeleteSchemasResponse(_Response):
    """The versions that were deleted."""

    __api_key__: ClassVar[i16] = i16(DELETE_SCHEMAS)
    error: i32 = _of("int32")
    error_message: str | None = _of("string")
    versions: tuple[i32, ...] = _of("int32")


@dataclass(frozen=True, kw_only=True)
class SetSchemaLevelRequest(_Request):
    """``subject`` None: of all that have none of their own. ``level`` None: back to the default."""

    __api_key__: ClassVar[i16] = i16(SET_SCHEMA_LEVEL)
    subject: str | None = _of("string")
    level: str | None = _of("string")


@dataclass(frozen=True, kw_only=True)
class SetSchemaLevelResponse(_Response):
    """The level before; None where the subject had none of its own."""

    __api_key__: ClassVar[i16] = i16(SET_SCHEMA_LEVEL)
    error: i32 = _of("int32")
    error_message: str | None = _of("string")
    prior: str | None = _of("string")


REQUESTS: dict[int, Any] = {
    GET_SCHEMAS: GetSchemasRequest,
    LIST_SUBJECTS: ListSubjectsRequest,
    REGISTER_SCHEMA: RegisterSchemaRequest,
    DELETE_SCHEMAS: DeleteSchemasRequest,
    SET_SCHEMA_LEVEL: SetSchemaLevelRequest,
}
RESPONSES: dict[int, Any] = {
    GET_SCHEMAS: GetSchemasResponse,
    LIST_SUBJECTS: ListSubjectsResponse,
    REGISTER_SCHEMA: RegisterSchemaResponse,
    DELETE_SCHEMAS: DeleteSchemasResponse,
    SET_SCHEMA_LEVEL: SetSchemaLevelResponse,
}
