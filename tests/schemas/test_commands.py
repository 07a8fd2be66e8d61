"""``klog schema``, as a person and as a script use it; all of it over brokers' own requests."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import Ran, act_rows, klog
from tests.rows import each

Run = Callable[..., Ran]


def schema(name: str, *fields: str) -> str:
    listed = [{"name": one, "type": "int"} for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


@pytest.fixture
def run(broker: RunningBroker) -> Run:
    def running(*words: object, input: str = "") -> Ran:
        return klog("schema", *words, "-B", broker.bootstrap, input=input)

    return running


def test_register_list_get(run: Run, subject: str, unique: str, tmp_path: Path) -> None:
    file = tmp_path / "one.avsc"
    file.write_text(schema(unique, "a", "b"))
    made = run("register", subject, file, "-o", "json").rows
    assert [(row["subject"], row["version"], row["type"]) for row in made] == [(subject, 1, "AVRO")]
    schema_id = made[0]["id"]
    assert run("register", f"{subject}-2", "-o", "json", input=schema(unique, "a", "b")).rows[0]["id"] == schema_id
    second = run("register", subject, "-", "-o", "json", input=schema(unique, "b")).rows[0]
    assert second["version"] == 2 and second["id"] > schema_id

    listed = run("list", subject)
    assert listed.code == 0
    assert listed.stdout.split()[:4] == ["ID", "SUBJECT", "VERSION", "TYPE"]
    assert [row["id"] for row in run("list", subject, f"{subject}-2", "-o", "json").rows] == [
        schema_id, second["id"], schema_id
    ]  # fmt: skip
    assert json.loads(run("get", schema_id).stdout) == json.loads(schema(unique, "a", "b"))
    assert json.loads(run("get", subject).stdout) == json.loads(schema(unique, "b"))
    row = run("get", subject, "--version", 1, "-o", "json").rows[0]
    assert (row["id"], row["version"]) == (schema_id, 1)
    assert json.loads(row["schema"]) == json.loads(schema(unique, "a", "b"))


def test_changes_of_the_registry_are_acts_and_a_level_is_taken_back(
    run: Run, broker: RunningBroker, subject: str, unique: str
) -> None:
    def acts() -> list[tuple[str, str, str]]:
        rows = act_rows(broker.zookeeper)
        found[:] = [row["act"] for row in rows if row["subject"] == f"schema {subject}"]
        return [(row["kind"], row["before"], row["after"]) for row in rows if row["act"] in found]

    found: list[str] = []
    made = [run("register", subject, "-o", "json", input=schema(unique, "a")).rows[0]["id"] for _ in range(2)]
    assert acts() == [("schema-register", "-", f"1=id {made[0]}")]
    run("level", "FULL", "--subject", subject)
    run("level", "FULL", "--subject", subject)  # changes nothing
    assert acts()[1:] == [("schema-level", "-", "compatibility=FULL")]
    undone = klog("undo", found[-1], "-y", "-o", "json", "-B", broker.bootstrap)
    assert (undone.code, undone.rows[0]["then"]) == (0, None)
    assert acts()[2:] == [("schema-level", "compatibility=FULL", "-")]
    run("level", "NONE", "--subject", subject)
    refused = klog("undo", found[1], "-y", "-o", "json", "-B", broker.bootstrap)
    assert refused.code == 1 and "NONE" in refused.error["message"] and "FULL" in refused.error["message"]
    assert run("delete", subject).code == 0
    assert acts()[-1] == ("schema-delete", f"1=id {made[0]}", f"1=id {made[0]}, deleted")


def test_check_tells_every_place_and_exits_1(run: Run, subject: str, unique: str) -> None:
    fresh = run("check", subject, input=schema(unique, "a"))
    assert (fresh.code, "BACKWARD" in fresh.stderr) == (0, True)
    run("register", subject, input=schema(unique, "a"))
    wrong = run("check", subject, "-o", "json", input=schema(unique, "a", "b", "c"))
    assert wrong.code == 1
    assert [(row["version"], row["reader"], row["kind"], row["path"]) for row in wrong.rows] == [
        (1, "new", "READER_FIELD_MISSING_DEFAULT_VALUE", "/b"),
        (1, "new", "READER_FIELD_MISSING_DEFAULT_VALUE", "/c"),
    ]
    refused = run("register", subject, "-o", "json", input=schema(unique, "a", "b"))
    assert (refused.code, refused.error["code"]) == (1, "INCOMPATIBLE_SCHEMA")
    assert "/b" in refused.error["message"]
    assert run("check", subject, "--version", 9, input=schema(unique, "a")).code == 1


def test_levels_and_deletion(run: Run, subject: str, unique: str) -> None:
    run("register", subject, input=schema(unique, "a"))
    shown = run("level", "full", "--subject", subject, "-o", "json")
    assert shown.rows == [{"subject": subject, "level": "FULL"}]
    everything = {row["subject"]: row["level"] for row in run("level", "-o", "json").rows}
    assert everything["*"] == "BACKWARD" and everything[subject] == "FULL"
    assert run("level", "--default", "--subject", subject, "-o", "json").rows[0]["level"] == "BACKWARD"
    wrong = run("level", "sideward", "-o", "json")
    assert wrong.error["code"] == "INVALID_COMPATIBILITY_LEVEL" and "FULL_TRANSITIVE" in wrong.error["hint"]
    assert run("level", "full", "--default").code == 2

    early = run("delete", subject, "--permanent", "-o", "json")
    assert (early.code, early.error["code"]) == (1, "SUBJECT_NOT_DELETED")
    assert run("delete", subject, "-o", "json").rows == [{"subject": subject, "version": 1, "permanent": False}]
    assert run("list", subject, "-o", "json").error["code"] == "SUBJECT_NOT_FOUND"
    assert [row["deleted"] for row in run("list", subject, "--deleted", "-o", "json").rows] == [True]
    assert run("delete", subject, "--version", 1, "--permanent", "--yes", "-o", "json").rows[0]["permanent"]


@each(
    ("words", "code"),
    [
        (["get", "999999"], "SCHEMA_NOT_FOUND"),
        (["get", "99999999999999"], "SCHEMA_NOT_FOUND"),
        (["get", "nobody"], "SUBJECT_NOT_FOUND"),
        (["delete", "nobody"], "SUBJECT_NOT_FOUND"),
        (["register", "s"], "INVALID_SCHEMA"),
        (["register", "s", "/no/such/file"], "USAGE"),
    ],
)
def test_errors_are_said(run: Run, words: list[str], code: str) -> None:
    ran = run(*words, "-o", "json")
    assert (ran.error["code"], ran.code) == (code, 2 if code == "USAGE" else 1)


def test_serve_is_the_registry_over_http_until_it_is_stopped(broker: RunningBroker, subject: str, unique: str) -> None:
    klog("schema", "register", subject, "-B", broker.bootstrap, input=schema(unique, "a"))
    with started("schema", "serve", "--port", "0", "-B", broker.bootstrap) as process:
        assert process.stderr is not None
        url = process.stderr.readline().decode().split()[-1]
        with urllib.request.urlopen(f"{url}/subjects/{subject}/versions/latest", timeout=10) as answer:
            assert json.loads(json.load(answer)["schema"]) == json.loads(schema(unique, "a"))
        body = json.dumps({"schema": schema(unique)}).encode()
        with urllib.request.urlopen(f"{url}/subjects/{subject}/versions", body, timeout=10) as answer:
            made = json.load(answer)["id"]
        assert json.loads(klog("schema", "get", made, "-B", broker.bootstrap).stdout)["fields"] == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
