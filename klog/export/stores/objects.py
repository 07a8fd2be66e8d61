"""Exports in object stores: S3 and what speaks like it, Google's, Azure's. The library is obstore, an extra.

Strategy: no rename, so commits are objects that are created where none is (``If-None-Match: *``, which S3 has since
2024, and the others in their own words). obstore was taken, not pyarrow's file systems, since those have no such put.
Not every server that speaks S3 heeds the condition, and one that does not overwrites in silence: before the first
creation a store is asked twice for the same new object, and has to refuse the second.

An answer may be lost after the object was made, and the library's second attempt then finds it there: what is there
already is compared with what was to be, and is ours if it is the same (commits name their run).

Endpoints and credentials are configured as for the stores' own tools: ``AWS_ACCESS_KEY_ID``, ``AWS_REGION``,
``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME`` and the like.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from klog.errors import Refused, StorageError, UsageError
from klog.export.stores.store import Store, StoredFile, StoreInput, StoreOutput, scheme_of

SCHEMES = ("az", "gs", "s3", "s3a")

READ_BYTES = 1 << 20
"""Asked for at once where less is wanted: a request costs as much as a megabyte takes."""

WRITE_BYTES = 8 << 20
"""A part of an upload; S3 takes no smaller ones than 5 MiB."""


class ObjectStore(Store):
    """A prefix in a bucket. Thread-safe."""

    commits_by_rename = False
    opens_anywhere = True

    def __init__(self, url: str, unsafe_single_writer: bool = False) -> None:
        """UsageError where the URL names no bucket, or obstore is not installed."""
        self._url = url.rstrip("/")
        self._unsafe = unsafe_single_writer
        self._is_conditional: bool | None = None
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise UsageError(
                f"{url}: object stores need the package obstore", hint="pip install 'klog[object-stores]'"
            ) from None
        self._obstore: Any = obstore
        try:
            self._store: Any = from_url(
                _plain(self._url), client_options={"allow_http": True} if is_without_tls(url) else {}
            )
        except obstore.exceptions.BaseError as error:
            raise UsageError(f"{url}: {_said(error)}") from None

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str, bool]]:
        return ObjectStore, (self._url, self._unsafe)

    @property
    def url(self) -> str:
        return self._url

    def location(self, path: str) -> str:
        root = self._url.replace("s3://", "s3a://", 1)  # the name under which Hadoop, so Spark, knows it
        return f"{root}/{path}" if path else root

    def read(self, path: str) -> bytes | None:
        data = None
        with self._named("read", path, FileNotFoundError):
            data = bytes(self._obstore.get(self._store, path).bytes())
        return data  # noqa: RET504  # the block may end quietly

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        """As `Store`; Refused where the store cannot, unless its single writer was promised."""
        if not self._check_conditional():
            if self.read(path) is not None:
                return False
            self.replace(path, data)
            return True
        is_made = False
        with self._named("make", path, self._obstore.exceptions.AlreadyExistsError):
            self._obstore.put(self._store, path, data, mode="create", use_multipart=False)
            is_made = True
        return is_made or self.read(path) == data

    def _check_conditional(self) -> bool:
        """Whether the store refuses to make what is there. Refused where it does not, and that was not allowed."""
        if self._is_conditional is None:
            self._is_conditional = self._refuses_a_second()
        if not self._is_conditional and not self._unsafe:
            raise Refused(
                f"{self._url}: this store overwrites an object despite If-None-Match, so two runs at once would "
                "both commit",
                hint="if nothing else ever exports to this root, add --unsafe-single-writer",
            )
        return self._is_conditional

    def _refuses_a_second(self) -> bool:
        path = f"_klog/.probe-{uuid.uuid4()}"
        exceptions = self._obstore.exceptions
        is_overwritten = False
        with self._named("make", path, exceptions.AlreadyExistsError, exceptions.NotSupportedError):
            for _ in range(2):
                self._obstore.put(self._store, path, b"", mode="create", use_multipart=False)
            is_overwritten = True
        is_made = self.read(path) is not None  # else the store knows no such put
        self.remove(path)
        return is_made and not is_overwritten

    def replace(self, path: str, data: bytes) -> None:
        with self._named("write", path):
            self._obstore.put(self._store, path, data)

    def names(self, folder: str) -> list[str]:
        with self._named("list", folder):
            found = self._obstore.list_with_delimiter(self._store, folder or None)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def walk(self, folder: str) -> list[StoredFile]:
        with self._named("list", folder):
            found = self._obstore.list(self._store, folder or None).collect()
        return sorted(StoredFile(one["path"], one["size"], one["last_modified"].timestamp()) for one in found)

    def remove(self, path: str) -> None:
        with self._named("remove", path, FileNotFoundError):
            self._obstore.delete(self._store, [file.path for file in self.walk(path)] or [path])

    def open_input(self, path: str) -> BinaryIO:
        size: int | None = None
        with self._named("open", path, FileNotFoundError):
            size = self._obstore.head(self._store, path)["size"]
        if size is None:
            raise StorageError(f"{self.location(path)} is not there")

        def read_at(at: int, count: int) -> memoryview:
            with self._named("read", path):
                return memoryview(self._obstore.get_range(self._store, path, start=at, end=at + count))

        return io.BufferedReader(StoreInput(size, read_at), READ_BYTES)

    def open_output(self, path: str) -> BinaryIO:
        writer = self._obstore.open_writer(self._store, path, buffer_size=WRITE_BYTES)
        return cast(BinaryIO, io.BufferedWriter(StoreOutput(writer, lambda: self._named("write", path)), READ_BYTES))

    @contextmanager
    def _named(self, act: str, path: str, *quiet: type[Exception]) -> Iterator[None]:
        """obstore's errors as StorageError; those that say what was to be found out leave the block quietly."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError) as error:
            if "NoSuchBucket" in str(error):
                raise StorageError(f"{self._url}: there is no such bucket") from error
            if isinstance(error, quiet):
                return
            raise StorageError(f"cannot {act} {self.location(path)}: {_said(error)}") from error


def _plain(url: str) -> str:
    return f"s3{url[3:]}" if scheme_of(url) == "s3a" else url


def s3_endpoint(url: str) -> str | None:
    """Where the environment says that S3 is, if not at Amazon; None for another store's URL."""
    import os

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint or None if scheme_of(url) in ("s3", "s3a") else None


def is_without_tls(url: str) -> bool:
    """Whether its endpoint is configured without TLS, so that this is intended; libraries ask whether it is."""
    return (s3_endpoint(url) or "").startswith("http://")


def _said(error: Exception) -> str:
    """What the library says, without its own debugging."""
    return " ".join(str(error).split("\n\nDebug source", 1)[0].split())
