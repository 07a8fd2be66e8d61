"""Errors of klog's on their way through Spark: without the frames that they came through, and back into klog's own.

Spark hands on what a Python process of its raised as text, with a traceback of twenty lines and more, whose last lines
are what a user needs. An error of klog's has its own reason and remedy, so its frames are left out there,
and what Spark shows is one block. Any other error is a fault of the program, and keeps them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Final

import klog.security.errors  # noqa: F401 - its classes are found by their names
from klog.errors import CorruptLog, HostError, KlogError, StorageError, TimedOut, UsageError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""pyspark looks at it when it writes down what was raised; its process ends with that."""
_OF_WORKERS: Final = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_UNIX_DOMAIN_ENABLED")
"""One of them Spark gives to each Python process that it starts, of tasks and of planners: how they find it again."""

_PYTHON_ERROR: Final = re.compile(r"^[\s:]*(\w+(?:\.\w+)*(?:Error|Exception): .*)$", re.MULTILINE)
_CALLING: Final = "An error occurred while"
"""How py4j begins what a call into the JVM has raised."""
_KLOG_ERROR: Final = re.compile(r"klog\.(?:\w+\.)*(\w+): (.*)(?:\s*\n\s*hint: (.*))?")

_NOT_CONNECTED: Final = "Python worker failed to connect back"
"""What Spark says when it has waited for 10 s, which no setting of its own changes."""
_MALFORMED: Final = re.compile(r"MALFORMED_RECORD_IN_PARSING.*?JsonParseException: ([^\n]*)", re.DOTALL)
"""What Spark says of a value that is not JSON, with the parser's reason."""
_DAEMON_ENDED: Final = "EOFException occurred while reading the port number"
"""What Spark says when the process from which its Python workers come has ended before it could be asked."""


class PythonWorkerLost(HostError):
    """A Python process of Spark's has ended, and not by what it was to do. The next try starts another one."""


def first_line(text: str) -> str:
    """Of what Spark has raised, without py4j's own words."""
    lines = [line.lstrip(": ") for line in text.strip().splitlines() if not line.startswith(_CALLING)]
    return lines[0] if lines else text


@contextmanager
def short_errors() -> Iterator[None]:
    """What klog raises within shows no frames, if this is a process of Spark's. Also a decorator of functions."""
    try:
        yield
    except KlogError:
        if any(name in os.environ for name in _OF_WORKERS):
            os.environ[_HIDE] = "1"
        raise


_NO_UPDATES: Final = "klog does not support Update mode"
"""What Spark says before it asks a sink in Python anything."""
_BY_BATCHES: Final = """\
foreachBatch writes each changed row; klog.streams does it exactly once:
def write(rows, batch):
    rows.write.format("klog").mode("append").options(**options).save()
frame.writeStream.outputMode("update").foreachBatch(write).start()"""


def translated(text: str) -> KlogError:
    """The error of klog's that Spark's text ends with; else another's of Python, or Spark's first line."""
    for name, message, hint in reversed(_KLOG_ERROR.findall(text)):
        kind = _kind(name)
        if kind is not None:
            return kind(message, hint=hint or None)
    if _NO_UPDATES in text:
        return UsageError('Spark has no output mode "update" for sinks in Python', hint=_BY_BATCHES)
    if _NOT_CONNECTED in text:
        return TimedOut("Spark's Python worker has not started within 10 s", hint="is this machine overloaded?")
    if malformed := _MALFORMED.search(text):
        return CorruptLog(f"a value is not JSON: {malformed[1]}", hint='bad="null" reads such values as null')
    if _DAEMON_ENDED in text:
        return PythonWorkerLost("the process that starts Spark's Python workers has ended", hint="was it killed?")
    raised = _PYTHON_ERROR.findall(text.partition("Traceback (most recent call last)")[2].partition("\tat ")[0])
    said = [line for line in raised if _CALLING not in line]
    return StorageError(f"Spark failed: {said[-1] if said else first_line(text)}")


@contextmanager
def klog_errors() -> Iterator[None]:
    """What Spark raises within, as the error of klog's that it was: one sentence, and a hint.

    For programs of users. Any other error is a StorageError with the first words of Spark's. Spark's own is
    the ``__context__`` in any case, which Python does not print.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise translated(str(error)) from None


def _kind(name: str) -> Callable[..., KlogError] | None:
    """The class of errors of this name, or the nearest above it that a message and a hint make."""
    for kind in _descendants(KlogError):
        if kind.__name__ == name:
            return next(one for one in kind.__mro__ if _is_made_of_words(one))
    return None


def _is_made_of_words(kind: type) -> bool:
    """Whether a message and a hint are enough."""
    wanted = signature(kind).parameters
    needed = [name for name, one in wanted.items() if one.default is one.empty]
    return needed == ["message"] and "hint" in wanted


def _descendants(kind: type[KlogError]) -> Iterator[type[KlogError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)
