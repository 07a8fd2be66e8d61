"""What an export decodes as: from a flag's text and the registry, before anything is read."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.client.raw_fetch import RawCluster
from klog.coordination.schemas import AVRO, SchemaRegistry
from klog.errors import NoSuchThing, Refused, UsageError
from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound, SubjectNotFound
from klog.spark import decoding
from klog.spark.decoding import Decode, schemas_at
from tests.broker_fixture import ROOT, RunningBroker
from tests.spark.refusals import not_refused


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[RawCluster]:
    with RawCluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"t-{secrets.token_hex(6)}"


def register(registry: SchemaRegistry, subject: str, *fields: str) -> tuple[int, str]:
    """(id, text) of a record of ints of this subject's."""
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in fields]}
    text = json.dumps(schema)
    return registry.register(subject, AVRO, text, lambda settings, subject: None).schema_id, text


def test_the_newest_schema_of_the_topic_s_subject(cluster: RawCluster, registry: SchemaRegistry, topic: str) -> None:
    register(registry, f"{topic}-value", "a")
    schema_id, text = register(registry, f"{topic}-value", "a", "b")
    key_id, key_text = register(registry, f"{topic}-key", topic.replace("-", "_"))
    for asked in ("avro", "avro:value"):
        found = Decode(asked).plan(cluster, [topic])
        assert found == {"column": "value", "reader": text, "reader_id": schema_id, "keep": False, "grows": True}
    found = Decode("avro:key", keep=True).plan(cluster, [topic])
    assert found == {"column": "key", "reader": key_text, "reader_id": key_id, "keep": True, "grows": True}


def test_what_an_export_was_begun_with_stays(cluster: RawCluster, registry: SchemaRegistry, topic: str) -> None:
    first, _ = register(registry, f"{topic}-value", "a")
    known = Decode("avro").plan(cluster, [topic])
    second, _ = register(registry, f"{topic}-value", "a", "b")
    assert Decode("avro").plan(cluster, [topic], known) == known
    assert Decode("avro:value").plan(cluster, [], known) == known
    assert Decode("avro", reader=str(second)).plan(cluster, [topic], known)["reader_id"] == second
    fixed = {name: value for name, value in known.items() if name != "grows"}
    assert Decode("avro").plan(cluster, [topic], fixed) == fixed, "a root of an earlier klog"
    assert Decode("avro", reader=str(first)).plan(cluster, [topic], known) == fixed
    assert Decode("avro", keep=True).plan(cluster, [topic], known) != known
    kept = known | {"keep": True}
    assert Decode("avro").plan(cluster, [topic], kept) == kept, "what a later run leaves out stays"
    assert Decode("avro", reader=str(first)).plan(cluster, [topic], kept) == fixed | {"keep": True}
    assert Decode("avro").plan(cluster, [topic], known | {"column": "key"})["column"] == "value"


def test_a_schema_of_one_s_own(cluster: RawCluster, registry: SchemaRegistry, topic: str, tmp_path: Path) -> None:
    schema_id, text = register(registry, f"{topic}-other", "a")
    assert Decode("avro", reader=str(schema_id)).plan(cluster, [topic])["reader"] == text
    file = tmp_path / "schema.avsc"
    file.write_text(text)
    assert Decode("avro", reader=str(file)).plan(cluster, [topic])["reader_id"] == -1
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}')
    with pytest.raises(InvalidSchema):
        Decode("avro", reader=str(file)).plan(cluster, [topic])
    with pytest.raises(NoSuchThing, match="schema"):
        Decode("avro", reader=str(tmp_path / "none")).plan(cluster, [topic])
    with pytest.raises(SchemaNotFound):
        Decode("avro", reader=str(2**31 - 1)).plan(cluster, [topic])


def test_topics_whose_schemas_differ_are_one_export_by_a_common_schema_only(
    cluster: RawCluster, registry: SchemaRegistry, topic: str
) -> None:
    topics = [topic, f"{topic}-2"]
    first, _ = register(registry, f"{topic}-value", "a")
    with pytest.raises(SubjectNotFound, match=f"{topic}-2-value") as caught:
        Decode("avro").plan(cluster, topics)
    assert caught.value.hint is not None
    register(registry, f"{topic}-2-value", "b")
    with pytest.raises(Refused, match="differ"):
        Decode("avro").plan(cluster, topics)
    assert Decode("avro", reader=str(first)).plan(cluster, topics)["reader_id"] == first
    register(registry, f"{topic}-2-value", "a")
    assert Decode("avro").plan(cluster, topics)["reader_id"] == first


def test_other_texts(cluster: RawCluster, topic: str) -> None:
    cases = ((asked, "avro:key") for asked in ("", "avro:headers", "json:headers", "Avro"))
    assert not_refused(cases, lambda asked: Decode(asked).plan(cluster, [topic]), UsageError) == []


def test_what_is_known_costs_no_arrow(broker: RunningBroker) -> None:
    code = f"""
import sys
from klog.client.raw_fetch import RawCluster
from klog.spark.decoding import Decode
known = {{"column": "value", "reader": "x", "reader_id": 1, "keep": False}}
with RawCluster({broker.bootstrap!r}) as cluster:
    assert Decode("avro").plan(cluster, ["t"], known) == known
print([name for name in ("pyspark", "py4j", "pyarrow", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


def test_no_topics_and_nothing_known(cluster: RawCluster) -> None:
    with pytest.raises(UsageError, match="topics"):
        Decode("avro").plan(cluster, [])


def test_texts_are_asked_for_once_a_process(
    broker: RunningBroker, registry: SchemaRegistry, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_id, text = register(registry, f"{topic}-value", "a")
    with pytest.raises(SchemaNotFound):
        schemas_at(broker.bootstrap)(2**31 - 1)
    assert schemas_at(broker.bootstrap)(schema_id) == text
    monkeypatch.delattr(decoding, "RawCluster")
    assert schemas_at(broker.bootstrap)(schema_id) == text, "no connection is made for what is known"
