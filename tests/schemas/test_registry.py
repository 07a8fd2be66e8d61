"""The registry in a real ZooKeeper: against a plain model, with many at once, and with answers that are lost."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordination import paths
from klog.coordination.schemas import AVRO, SCHEMA_BYTES_MAX, SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError
from klog.protocol.schema_errors import IncompatibleSchema, InvalidSchema, InvalidSubject, SchemaError
from klog.schemas.registry import ALL, LATEST, ZooKeeperRegistry
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy


def schema(*fields: str, name: str = "R", **more: Any) -> str:
    """A record of int fields; one with ``=`` has a default."""
    listed = [
        {"name": one.rstrip("="), "type": "int", **({"default": 0} if one.endswith("=") else {})} for one in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": listed, **more})


@pytest.fixture
def verbs(registry: SchemaRegistry) -> ZooKeeperRegistry:
    return ZooKeeperRegistry(registry)


# --- One after the other ----------------------------------------------------------------------------------------------


def test_what_is_not_compatible_is_refused_with_the_place_and_leaves_nothing(verbs: ZooKeeperRegistry) -> None:
    verbs.register("a", AVRO, schema("x"))
    with pytest.raises(IncompatibleSchema, match=r"\(BACKWARD\).* version 1 at /y: "):
        verbs.register("a", AVRO, schema("x", "y"))
    assert [one.path for one in verbs.check("a", AVRO, schema("x", "y"))] == ["/y"]
    verbs.set_level("a", "none")
    assert verbs.register("a", AVRO, schema("x", "y")).schema_id == 2, "a refusal takes no id"


def test_limits_are_said(verbs: ZooKeeperRegistry, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSchema, match=str(SCHEMA_BYTES_MAX)):
        verbs.register("a", AVRO, schema(doc="x" * SCHEMA_BYTES_MAX))
    verbs.register("a", AVRO, schema(doc="x" * (SCHEMA_BYTES_MAX - 1000)))
    for name in ("", "n" * 256):
        with pytest.raises(InvalidSubject):
            verbs.register(name, AVRO, schema())
    with pytest.raises(InvalidSchema, match="PROTOBUF"):
        verbs.register("a", "PROTOBUF", 'syntax = "proto3";')
    monkeypatch.setattr("klog.coordination.schemas.SUBJECT_BYTES_MAX", 150)
    verbs.set_level("full", "NONE")
    with pytest.raises(InvalidSubject, match="node"):
        for number in range(20):
            verbs.register("full", AVRO, schema(f"f{number}"))
    assert len(verbs.subjects(["full"])[0].live) > 1


def test_any_name_is_a_subject(verbs: ZooKeeperRegistry) -> None:
    names = ("a/b", "%2F", "..", "ü → 日本", "a b?c#d", ":.ctx:s", "\x01")
    made = {name: verbs.register(name, AVRO, schema()) for name in names}
    assert {one.name for one in verbs.subjects()} == made.keys()
    assert {name: verbs.find(name, AVRO, schema()) for name in names} == made


def test_a_cluster_that_was_made_before_there_was_a_registry(connect: Callable[..., ZooKeeper]) -> None:
    session = connect()
    verbs = ZooKeeperRegistry(SchemaRegistry(session))
    assert session.exists(paths.SCHEMAS) is None
    assert (verbs.subjects(), verbs.level(), verbs.schemas([1])) == ([], "BACKWARD", {})
    assert verbs.register("a", AVRO, schema()).schema_id == 1


# --- Against a model --------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """A registry as one would write it without ZooKeeper, without races, and without comparing schemas."""

    ids: dict[str, int] = field(default_factory=dict)
    subjects: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Name -> [number, id, is deleted] of each version."""
    last: dict[str, int] = field(default_factory=dict)

    def register(self, name: str, text: str) -> tuple[int, int]:
        schema_id = self.ids.setdefault(text, len(self.ids) + 1)
        for number, there, deleted in self.subjects.get(name, []):
            if there == schema_id and not deleted:
                return number, schema_id
        self.last[name] = self.last.get(name, 0) + 1
        self.subjects.setdefault(name, []).append([self.last[name], schema_id, False])
        return self.last[name], schema_id

    def delete(self, name: str, version: int, permanent: bool) -> list[int] | int:
        """The versions, or the number of the error."""
        versions = self.subjects.get(name, [])
        if not versions:
            return 40401
        live = [one for one in versions if not one[2]]
        if version == ALL:
            if permanent and live:
                return 40405
            if not permanent and not live:
                return 40404
            chosen = versions if permanent else live
        elif version == LATEST:
            among = versions if permanent else live
            if not among:
                return 40404
            chosen = among[-1:]
        else:
            chosen = [one for one in versions if one[0] == version]
            if not chosen:
                return 40402
        if version != ALL:
            if permanent and not chosen[0][2]:
                return 40407
            if not permanent and chosen[0][2]:
                return 40406
        numbers = [one[0] for one in chosen]
        if permanent:
            self.subjects[name] = [one for one in versions if one[0] not in numbers]
        for one in self.subjects[name]:
            one[2] = one[2] or one[0] in numbers
        return numbers


NAMES = st.sampled_from(["a", "b"])
ACTS = st.one_of(
    st.tuples(st.just("register"), NAMES, st.integers(0, 4)),
    st.tuples(st.just("find"), NAMES, st.integers(0, 4), st.booleans()),
    st.tuples(st.just("delete"), NAMES, st.sampled_from([ALL, LATEST, 1, 2, 3]), st.booleans()),
)
TEXTS = [schema(f"f{number}") for number in range(5)]


@pytest.fixture(scope="module")
def session(zookeeper: Any) -> Any:
    with ZooKeeper(f"{zookeeper.address}/model-{secrets.token_hex(4)}") as started:
        started.start(create_chroot=True)
        yield started


@given(acts=st.lists(ACTS, min_size=5, max_size=25))
def test_the_registry_does_as_a_plain_model_does(session: ZooKeeper, acts: list[tuple[Any, ...]]) -> None:
    verbs, model = ZooKeeperRegistry(SchemaRegistry(session)), Model()
    here = secrets.token_hex(4)  # subjects and schemas of this example's own
    texts = [json.dumps({**json.loads(text), "name": f"R{here}"}) for text in TEXTS]
    ids: dict[int, int] = {}
    """The model's -> ZooKeeper's: they ascend in the same order."""
    for act, name, what, *more in acts:
        subject = f"{name}-{here}"
        if act == "register":
            verbs.set_level(subject, "NONE")
            made = verbs.register(subject, AVRO, texts[what])
            number, schema_id = model.register(name, texts[what])
            assert (made.number, made.schema_id) == (number, ids.setdefault(schema_id, made.schema_id))
        elif act == "find":
            there = [one for one in model.subjects.get(name, []) if more[0] or not one[2]]
            matching = [one for one in there if one[1] == model.ids.get(texts[what])]
            try:
                found = verbs.find(subject, AVRO, texts[what], deleted=more[0])
                assert [found.number, ids.get(matching[-1][1])] == [matching[-1][0], found.schema_id]
            except SchemaError as error:
                assert error.registry_code == (40403 if there else 40401)
                assert not matching
        else:
            expected = model.delete(name, what, more[0])
            try:
                assert verbs.delete(subject, what, permanent=more[0]) == expected
            except SchemaError as error:
                assert error.registry_code == expected
        for known in ("a", "b"):
            shown = verbs.subjects([f"{known}-{here}"])
            versions = [[one.number, one.schema_id, one.is_deleted] for one in (shown[0].versions if shown else ())]
            assert versions == [[number, ids[one], gone] for number, one, gone in model.subjects.get(known, [])]
    assert list(ids) == sorted(ids) and list(ids.values()) == sorted(ids.values())
    kept = verbs.schemas(ids.values())
    assert {kept[ids[one]].text: one for one in ids} == {
        json.dumps(json.loads(text), separators=(",", ":")): one for text, one in model.ids.items()
    }


# --- Many at once -----------------------------------------------------------------------------------------------------


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """What each gives, or the KlogError it raises; all begin together."""
    begin = threading.Barrier(len(works))

    def work(one: Callable[[], Any]) -> Any:
        begin.wait()
        try:
            return one()
        except KlogError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(work, works))


def test_equal_schemas_that_are_registered_at_once_have_one_id(connect: Callable[..., ZooKeeper]) -> None:
    sessions = [ZooKeeperRegistry(SchemaRegistry(connect())) for _ in range(4)]
    texts = [schema(f"f{number}") for number in range(3)]

    def registering(verbs: ZooKeeperRegistry, text: str, subject: str) -> Callable[[], Any]:
        return lambda: verbs.register(subject, AVRO, text)

    asked = [
        (text, f"{'same' if session % 2 else 'other'}-{number}")
        for session in range(4)
        for number, text in enumerate(texts)
    ]
    works = [
        registering(verbs, text, subject)
        for verbs, (text, subject) in zip(itertools.cycle(sessions), asked, strict=False)
    ]
    made = at_once(works)
    assert not [one for one in made if isinstance(one, KlogError)]
    by_text: dict[str, set[int]] = {}
    for (text, _), version in zip(asked, made, strict=True):
        by_text.setdefault(text, set()).add(version.schema_id)
    assert sorted(map(sorted, by_text.values())) == [[1], [2], [3]], "one id a schema, no id for two, none left out"
    for subject in sessions[0].subjects():
        assert [one.number for one in subject.versions] == [1]


def test_of_two_that_exclude_each_other_one_is_refused(connect: Callable[..., ZooKeeper]) -> None:
    """Each may follow what is there, and neither may follow the other: whoever is later must see the earlier."""
    verbs = [ZooKeeperRegistry(SchemaRegistry(connect())) for _ in range(2)]
    verbs[0].set_level(None, "FULL")

    def following(one: ZooKeeperRegistry, subject: str, kind: str, default: Any) -> Callable[[], Any]:
        field = {"name": "x", "type": kind, "default": default}
        return lambda: one.register(subject, AVRO, json.dumps({"type": "record", "name": "R", "fields": [field]}))

    for number in range(5):
        subject = f"s{number}"
        verbs[0].register(subject, AVRO, schema())
        made = at_once([following(verbs[0], subject, "int", 0), following(verbs[1], subject, "string", "")])
        assert sorted(isinstance(one, IncompatibleSchema) for one in made) == [False, True]
        assert [one.number for one in verbs[0].subjects([subject])[0].live] == [1, 2]


# --- Answers that are lost --------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(proxy: ZooKeeperProxy, through: Callable[..., ZooKeeper]) -> ZooKeeperRegistry:
    return ZooKeeperRegistry(SchemaRegistry(through()))


def test_a_lost_answer_to_a_registration_says_the_same_id(proxy: ZooKeeperProxy, lossy: ZooKeeperRegistry) -> None:
    proxy.lose_answer_of(frozenset({MULTI}))
    first = lossy.register("a", AVRO, schema())
    assert proxy.lost == 1
    assert (first.schema_id, first.number) == (1, 1)
    proxy.lose_answer_of(frozenset({MULTI}))
    assert lossy.register("b", AVRO, schema()).schema_id == 1
    assert proxy.lost == 2
    assert lossy.register("a", AVRO, schema("x=")).schema_id == 2, "no id was wasted or doubled"
    assert [len(one.versions) for one in lossy.subjects()] == [2, 1]


def test_a_lost_answer_to_a_deletion_or_a_level_is_no_error(proxy: ZooKeeperProxy, lossy: ZooKeeperRegistry) -> None:
    lossy.register("a", AVRO, schema())
    for act, expected in (
        (lambda: lossy.delete("a"), [1]),
        (lambda: lossy.delete("a", permanent=True), [1]),
        (lambda: lossy.set_level("a", "FULL"), None),
        (lambda: lossy.set_level(None, "NONE"), "BACKWARD"),
    ):
        lost = proxy.lost
        proxy.lose_answer_of(frozenset({MULTI}))
        assert act() == expected  # type: ignore[no-untyped-call]
        assert proxy.lost == lost + 1
