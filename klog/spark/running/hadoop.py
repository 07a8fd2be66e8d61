"""Exports in Hadoop's file systems, through a JVM: HDFS and those beside it whose rename is atomic.

Strategy: `FileContext.rename` without the option to overwrite is one operation of the name node and fails where the
target is, also for folders; that is the commit. A new small file is written under another name and given its own the
same way, so it is there whole or not at all. ``FileSystem.rename`` is never used (it moves *into* a folder that is
there), and the local file system's own are not safe in Hadoop at all: paths of this machine do not come here.

The JVM is the session's, where this process has one, else a small one with Spark's jars and no Spark, so that looking
at an export starts in a second. ``HADOOP_CONF_DIR`` is read, and settings ``spark.hadoop.*`` count as they do in Spark.

Limits: bytes pass to Python through a socket as text, some 50 MB/s, so tasks do not write by this; Spark does. A closed
file is in the memory of all its data nodes, and on their disks with ``dfs.datanode.synconclose``.
"""

from __future__ import annotations

import atexit
import io
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from klog.errors import JavaMissing, Refused, StorageError, UsageError
from klog.export.stores import add_opener
from klog.export.stores.store import Store, StoredFile, StoreInput, StoreOutput, scheme_of
from klog.spark.running.jvm import QUIET_FLAGS

ATOMIC = ("abfs", "abfss", "hdfs", "swebhdfs", "viewfs", "webhdfs")
"""Whose rename is one step. Of viewfs, where what is mounted has such a rename."""

OTHERS = ("har", "o3fs", "ofs", "wasb", "wasbs", "oss", "obs", "cosn")
"""Known to Hadoop, and nothing is known of their rename."""

WRITE_BYTES = 4 << 20
READ_BYTES = 1 << 20

MISSING = "FileNotFoundException"

_settings: dict[str, str] = {}


def use_settings(settings: Mapping[str, str]) -> None:
    """``spark.hadoop.*`` of these hold for stores opened from now on, in this process."""
    prefix = "spark.hadoop."
    _settings.update({name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)})


def open_hadoop(url: str, unsafe_single_writer: bool = False) -> Store:
    """Refused where the file system's rename is not known to be atomic, unless its single writer was promised."""
    scheme = scheme_of(url)
    if scheme not in ATOMIC and not unsafe_single_writer:
        raise Refused(
            f"{url}: whether {scheme}: renames folders in one step is not known, so two runs at once might both commit",
            hint=f"use one of {', '.join(ATOMIC)}; or, where nothing else ever exports to this root, say so: "
            "--unsafe-single-writer",
        )
    return HadoopStore(url, dict(_settings), atomic=scheme in ATOMIC)


def register_stores() -> None:
    """From now on `klog.export.stores.open_store` knows these schemes."""
    add_opener((*ATOMIC, *OTHERS), open_hadoop)


class HadoopStore(Store):
    """A folder of a Hadoop file system. Thread-safe. What was closed is on as many machines as the file system keeps it
    on."""

    opens_anywhere = False

    def __init__(self, url: str, settings: dict[str, str], atomic: bool = True) -> None:
        """UsageError where the URL is wrong, or the class of its file system is not there; JavaMissing."""
        self._url = url.rstrip("/")
        self._atomic = atomic
        self._settings = settings
        self._jvm, self._conf = _java()
        for name, value in settings.items():
            self._conf.set(name, value)
        self._fs_package = self._jvm.org.apache.hadoop.fs
        try:
            with self._translating("open", ""):
                root = self._fs_package.Path(self._url)
                self._files = root.getFileSystem(self._conf)
                if atomic:
                    self._context = self._fs_package.FileContext.getFileContext(root.toUri(), self._conf)
        except StorageError as error:
            raise UsageError(error.message, hint=_HINTS.get(scheme_of(url))) from None

    def __reduce__(self) -> tuple[type[HadoopStore], tuple[str, dict[str, str], bool]]:
        return HadoopStore, (self._url, self._settings, self._atomic)

    @property
    def url(self) -> str:
        return self._url

    @property
    def commits_by_rename(self) -> bool:
        return self._atomic

    def location(self, path: str) -> str:
        return f"{self._url}/{path}" if path else self._url

    def _path(self, path: str) -> Any:
        return self._fs_package.Path(self.location(path))

    def read(self, path: str) -> bytes | None:
        data = None
        with self._translating("read", path, MISSING):
            stream = self._files.open(self._path(path))
            try:
                data = bytes(stream.readAllBytes())
            finally:
                stream.close()
        return data

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        if not self._atomic:  # then this is the only writer
            if self.read(path) is not None:
                return False
            self._write(path, data)
            return True
        temporary = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}".lstrip("/")
        self._write(temporary, data)
        try:
            if self.rename(temporary, path):
                return True
            return self.read(path) == data  # the name node's answer to a first attempt may have been lost
        finally:
            self.remove(temporary)

    def _write(self, path: str, data: bytes) -> None:
        with self._translating("write", path):
            stream = self._files.create(self._path(path), True)
            try:
                stream.write(data)
                stream.hsync()
            finally:
                stream.close()

    def replace(self, path: str, data: bytes) -> None:
        if not self._atomic:
            self._write(path, data)
            return
        temporary = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}".lstrip("/")
        self._write(temporary, data)
        with self._translating("replace", path):
            self._rename(temporary, path, "OVERWRITE")

    def names(self, folder: str) -> list[str]:
        found: list[str] = []
        with self._translating("list", folder, MISSING):
            path = self._path(folder)
            if self._files.getFileStatus(path).isFile():
                raise Refused(f"{self.location(folder)} is a file", hint="name a folder that is not there yet")
            found = [status.getPath().getName() for status in self._files.listStatus(path)]
        return sorted(found)

    def walk(self, folder: str) -> list[StoredFile]:
        found = []
        with self._translating("list", folder, MISSING):
            root = self._path("").toUri().getPath().rstrip("/")
            files = self._files.listFiles(self._path(folder), True)
            while files.hasNext():
                status = files.next()
                path = status.getPath().toUri().getPath().removeprefix(f"{root}/")
                found.append(StoredFile(path, status.getLen(), status.getModificationTime() / 1000))
        return sorted(found)

    def touched_s(self, folder: str) -> float:
        latest = max((file.modified_s for file in self.walk(folder)), default=0.0)
        with self._translating("look at", folder, MISSING):
            latest = max(latest, self._files.getFileStatus(self._path(folder)).getModificationTime() / 1000)
        return latest or time.time()

    def remove(self, path: str) -> None:
        with self._translating("remove", path):
            self._files.delete(self._path(path), True)

    def make_folder(self, path: str) -> None:
        with self._translating("make", path):
            self._files.mkdirs(self._path(path))

    def open_input(self, path: str) -> BinaryIO:
        with self._translating("open", path):
            size = self._files.getFileStatus(self._path(path)).getLen()
            stream = self._files.open(self._path(path))

        def read_at(at: int, count: int) -> bytes:
            with self._translating("read", path):
                stream.seek(at)
                return bytes(stream.readNBytes(min(count, READ_BYTES)))

        return io.BufferedReader(StoreInput(size, read_at, stream.close), READ_BYTES)

    def open_output(self, path: str) -> BinaryIO:
        with self._translating("make", path):
            stream = self._files.create(self._path(path), False)
        return cast(
            BinaryIO, io.BufferedWriter(StoreOutput(stream, lambda: self._translating("write", path)), WRITE_BYTES)
        )

    def rename(self, source: str, target: str) -> bool:
        if not self._atomic:
            raise Refused(f"{self._url}: nothing is renamed where that may be more than one step")
        is_renamed = False
        with self._translating("make", target, "FileAlreadyExistsException"):
            self._files.mkdirs(self._path(target.rpartition("/")[0]))
            self._rename(source, target, "NONE")
            is_renamed = True
        return is_renamed  # noqa: RET504  # the block may end quietly

    def _rename(self, source: str, target: str, option: str) -> None:
        kind = getattr(self._fs_package, "Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
        )
        options[0] = getattr(kind, option)
        self._context.rename(self._path(source), self._path(target), options)

    @contextmanager
    def _translating(self, act: str, path: str, quiet: str = "") -> Iterator[None]:
        """Java's exceptions as StorageError; that of one class leaves the block quietly."""
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            name = error.java_exception.getClass().getSimpleName()
            if name == quiet:
                return
            said = str(error.java_exception.getMessage()).splitlines()[0]
            raise StorageError(f"cannot {act} {self.location(path)}: {name}: {said}") from error
        except Py4JError as error:
            raise StorageError(f"cannot {act} {self.location(path)}: {error}") from error


_HINTS = {
    "abfs": "its classes do not come with Spark: --conf spark.jars.packages=org.apache.hadoop:hadoop-azure:3.5.0",
    "abfss": "its classes do not come with Spark: --conf spark.jars.packages=org.apache.hadoop:hadoop-azure:3.5.0",
    "hdfs": "name the name node (hdfs://host:8020/path), or set HADOOP_CONF_DIR",
    "viewfs": "the mount table comes from HADOOP_CONF_DIR, or --conf spark.hadoop.fs.viewfs.mounttable...",
}


# --- The JVM ---

_lock = threading.Lock()
_gateway: Any = None


def _java() -> tuple[Any, Any]:
    """(a JVM's view, a Hadoop configuration of its own)."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        return context._jvm, context._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    global _gateway
    with _lock:
        if _gateway is None or _gateway.java_process.poll() is not None:
            _gateway = _launch()
            atexit.register(_gateway.shutdown)
        jvm = _gateway.jvm
    return jvm, jvm.org.apache.hadoop.conf.Configuration()


def _launch() -> Any:
    """A JVM with Spark's jars, which ends with this process."""
    from py4j.java_gateway import JavaGateway

    py4j = _py4j()
    settings = [folder for folder in (os.environ.get("HADOOP_CONF_DIR"),) if folder]
    try:
        return JavaGateway.launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join([*settings, f"{py4j.parent}/*"]),
            javaopts=[*QUIET_FLAGS.split(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            enable_auth=True,
        )
    except (OSError, ValueError) as error:
        raise JavaMissing(
            f"Java does not start: {error}",
            hint="Hadoop's file systems need Java 17 or later; Debian, Ubuntu: apt install openjdk-17-jre-headless",
        ) from None


def _py4j() -> Path:
    """The JVM's half of py4j, which lies among Spark's jars: beside pyspark, or above the zip that Spark's own Python
    processes have it from, or in SPARK_HOME."""
    import pyspark

    places = [*Path(pyspark.__file__).parents, *map(Path, filter(None, [os.environ.get("SPARK_HOME")]))]
    for place in places:
        for found in place.glob("jars/py4j-*.jar"):
            return found
    raise JavaMissing(
        f"Spark's jars are neither near {Path(pyspark.__file__).parent} nor in SPARK_HOME",
        hint="Hadoop's file systems need them: set SPARK_HOME",
    )
