"""Errors of klog through Spark: the text that Spark makes of them, read back; frames left out in its processes."""

from __future__ import annotations

import os

import pytest

from klog.errors import (
    CorruptLog,
    HostError,
    KlogError,
    StorageError,
    TimedOut,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.security.errors import TopicAuthorizationFailed
from klog.spark import source_progress
from klog.spark.short_errors import PythonWorkerLost, short_errors, translated

HIDE = "SPARK_HIDE_TRACEBACK"
PLANNED = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "planning.py", line 202, in _chosen
    raise UnknownTopicOrPartition(...)
klog.errors.UnknownTopicOrPartition: lost
hint: look
 SQLSTATE: 38000"""


def test_the_error_comes_back_with_its_hint() -> None:
    found = translated(PLANNED)
    assert isinstance(found, UnknownTopicOrPartition)
    assert (found.message, found.hint) == ("lost", "look")
    assert translated(PLANNED.replace("\nhint: look", "")).hint is None


def test_a_daemon_that_was_killed_is_another_try() -> None:
    text = (
        "Job aborted: EOFException occurred while reading the port number from pyspark.daemon's stdout and terminated"
    )
    assert type(translated(text)) is PythonWorkerLost


IN_A_BATCH = """\
Traceback (most recent call last):
  File "sink.py", line 83, in fill
py4j.protocol.Py4JJavaError: An error occurred while calling o339.save.
: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed: [null].
\tat org.apache.spark.X
"""


def test_what_the_jvm_raised_in_a_batch_is_said() -> None:
    assert "SparkException: [MALFORMED" in translated(IN_A_BATCH).message


def test_a_value_that_is_not_json_has_its_reason() -> None:
    found = translated(f"{IN_A_BATCH}Caused by: com.fasterxml.jackson.core.JsonParseException: token 'not'\n at [1]")
    assert type(found) is CorruptLog and found.message.endswith(": token 'not'")
    assert 'bad="null"' in (found.hint or "")


def test_an_update_names_what_serves_instead() -> None:
    found = translated("requirement failed: klog does not support Update mode.")
    assert type(found) is UsageError and "foreachBatch(write)" in (found.hint or "")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("klog.errors.TimedOut: no answer", TimedOut),
        ("klog.security.errors.TopicAuthorizationFailed: no answer", TopicAuthorizationFailed),
        ("klog.errors.SendFailed: no answer", HostError),  # it needs more than words
        ("klog.errors.Unheard: no answer", StorageError),
        ("Traceback (most recent call last)\n  File\nValueError: no answer\n\tat java", StorageError),
    ],
)
def test_its_class_is_found_by_its_name(said: str, kind: type[KlogError]) -> None:
    found = translated(f"Job aborted: {said}")
    assert type(found) is kind
    assert "no answer" in found.message


def test_frames_are_left_out_in_a_process_of_sparks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHON_UNIX_DOMAIN_ENABLED", "PYTHON_WORKER_FACTORY_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(HIDE, "")

    def raising(error: Exception) -> str:
        with pytest.raises(type(error)), short_errors():
            raise error
        return os.environ[HIDE]

    assert raising(TimedOut("x")) == ""
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    assert raising(ValueError("a fault of the program")) == ""
    assert raising(TimedOut("x")) == "1"


def test_progress_says_how_far_a_source_is_behind() -> None:
    latest = {"offsets": {}, "reads": "clicks", "lag": {"messages": 3, "bytes": None}}
    found = source_progress({"sources": [{"latestOffset": latest}, {"latestOffset": {"a": 1}}, {"latestOffset": None}]})
    assert [(one.reads, one.lag_messages, one.lag_bytes) for one in found] == [("clicks", 3, None)]
