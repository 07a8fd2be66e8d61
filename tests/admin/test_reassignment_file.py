"""The file of a reassignment: what is written is read, and nonsense is named with where, found and expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin import reassignment_file
from klog.admin.reassignment_file import WrongPlan
from klog.errors import NoSuchThing
from klog.names import TopicPartition
from tests.rows import each

ENTRY = '{"topic": "t", "partition": 0, "replicas": [1, 2]}'


def plan(*entries: str, version: str = "1") -> str:
    return f'{{"version": {version}, "partitions": [{", ".join(entries)}]}}'


def test_what_is_written_is_read_and_is_kafkas_form(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    wanted = {TopicPartition("t", 1): (2, 1), TopicPartition("a", 0): (3,)}
    reassignment_file.write(path, wanted)
    assert reassignment_file.read(path) == wanted
    assert json.loads(path.read_text()) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 0, "replicas": [3]},
            {"topic": "t", "partition": 1, "replicas": [2, 1]},
        ],
    }
    reassignment_file.write(path, {TopicPartition("a", 0): (1,)})
    assert reassignment_file.read(path) == {TopicPartition("a", 0): (1,)}
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]
    assert reassignment_file.rollback_path(path) == tmp_path / "plan.json.rollback"


def test_kafkas_own_tool_writes_log_dirs_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan('{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}'))
    assert reassignment_file.read(path) == {TopicPartition("t", 0): (1, 2)}


@each(
    ("text", "words"),
    [
        ("", "line 1 column 1"),
        ('{"version": 1,\n "partitions": [}', "line 2 column 17"),
        ("[]", "the file: found []; expected an object"),
        ("7", "the file: found 7"),
        ('{"partitions": []}', '"version": found nothing; expected 1'),
        (plan(ENTRY, version="2"), '"version": found 2; expected 1'),
        (plan(ENTRY, version="true"), '"version": found true; expected 1'),
        ('{"version": 1}', '"partitions": found nothing'),
        ('{"version": 1, "partitions": {}}', '"partitions": found {}'),
        ('{"version": 1, "version": 1, "partitions": []}', "'version'"),
        (plan(), '"partitions": found []'),
        (plan(ENTRY, "5"), "entry 2: found 5"),
        (plan('{"partition": 0, "replicas": [1]}'), 'entry 1: "topic": found nothing'),
        (plan('{"topic": 5, "partition": 0, "replicas": [1]}'), 'entry 1: "topic": found 5'),
        (plan('{"topic": "a/b", "partition": 0, "replicas": [1]}'), '"a/b"'),
        (plan('{"topic": "t", "replicas": [1]}'), 'entry 1: "partition": found nothing; expected a number from 0 on'),
        (plan('{"topic": "t", "partition": -1, "replicas": [1]}'), '"partition": found -1'),
        (plan('{"topic": "t", "partition": "0", "replicas": [1]}'), '"partition": found "0"'),
        (plan('{"topic": "t", "partition": true, "replicas": [1]}'), '"partition": found true'),
        (plan('{"topic": "t", "partition": 0}'), 'entry 1 (t-0): "replicas": found nothing'),
        (plan('{"topic": "t", "partition": 0, "replicas": []}'), '"replicas": found []'),
        (plan('{"topic": "t", "partition": 0, "replicas": 1}'), '"replicas": found 1'),
        (plan('{"topic": "t", "partition": 0, "replicas": ["1"]}'), '"replicas": found ["1"]'),
        (plan('{"topic": "t", "partition": 0, "replicas": [1.5]}'), '"replicas": found [1.5]'),
        (plan('{"topic": "t", "partition": 0, "replicas": [-1]}'), '"replicas": found [-1]'),
        (plan('{"topic": "t", "partition": 0, "replicas": [1, 1]}'), "found [1, 1]"),
        (plan(ENTRY, ENTRY), "entry 2 (t-0)"),
        (plan('{"topic": "t", "partition": 0, "replicas": [1], "isr": [1]}'), "entry 1 (t-0)"),
    ],
)
def test_nonsense_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(WrongPlan) as caught:
        reassignment_file.read(path)
    assert caught.value.message.startswith(f"{path}: ") and words in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing, match=r"none\.json"):
        reassignment_file.read(tmp_path / "none.json")
    with pytest.raises(NoSuchThing, match=str(tmp_path)):
        reassignment_file.read(tmp_path)
    (tmp_path / "latin").write_bytes(b'{"version": 1, "\xe9')
    with pytest.raises(WrongPlan, match=r"utf-8.*\b16\b"):
        reassignment_file.read(tmp_path / "latin")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["t", "version", "partitions", "x/y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["version", "partitions", "topic", "partition", "replicas"]), inner)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_plan_or_is_refused_in_words(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(value))
    try:
        found = reassignment_file.read(path)
    except WrongPlan as error:
        assert "found" in error.message and "expected" in error.message
    else:
        assert found and all(len(set(ids)) == len(ids) > 0 for ids in found.values())
