"""Committed offsets to files and back; what is no offset is named by its line."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from klog.admin.offset_files import Form, parse, read, text_of
from klog.coordination.committed import CommittedOffset
from klog.names import TopicPartition
from tests.rows import each

ONE, TWO, THREE = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("a.b-c_d", 12)
OFFSETS = {ONE: CommittedOffset(2868), TWO: CommittedOffset(0), THREE: CommittedOffset(2**63 - 1)}


def back(text: str, group: str | None = None) -> dict[tuple[str, TopicPartition], CommittedOffset | None]:
    lines, bad = parse(text, group)
    assert bad == []
    return {(line.group, line.name): line.committed for line in lines}


def test_the_lines_that_0_8_writes() -> None:
    assert text_of("g", OFFSETS, "zk") == (
        "/consumers/g/offsets/a.b-c_d/12:9223372036854775807\n"
        "/consumers/g/offsets/clicks/0:2868\n"
        "/consumers/g/offsets/clicks/1:0\n"
    )
    assert text_of("a/b", {ONE: CommittedOffset(1)}, "zk") == "/consumers/a%2Fb/offsets/clicks/0:1\n"


def test_the_lines_that_0_8_2_documents() -> None:
    assert back("/consumers/g/offsets/t/1-0:286894308\n/consumers/g/offsets/t/2-1:284803985\n") == {
        ("g", TopicPartition("t", 0)): CommittedOffset(286894308),
        ("g", TopicPartition("t", 1)): CommittedOffset(284803985),
    }


def test_the_csv_that_kafka_takes_and_its_short_form() -> None:
    assert text_of("g", {ONE: CommittedOffset(7)}, "csv") == "g,clicks,0,7\n"
    assert back("clicks,0,7\n", "mine") == {("mine", ONE): CommittedOffset(7)}
    assert back('group,topic,partition,offset\n"a, b",clicks,0,7\n\n') == {("a, b", ONE): CommittedOffset(7)}
    _, bad = parse("clicks,0,7\n")
    assert [str(one) for one in bad] != [] and str(bad[0]).startswith("line 1: ")


def test_json_keeps_what_a_commit_has_besides() -> None:
    kept = {ONE: CommittedOffset(7, 3, "hällo\n"), TWO: None}
    text = text_of("g", kept, "json")
    document = json.loads(text)
    assert document["_version"] == 1
    assert document["rows"][0] == {
        "group": "g",
        "topic": "clicks",
        "partition": 0,
        "offset": 7,
        "leader_epoch": 3,
        "metadata": "hällo\n",
    }
    assert back(text) == {("g", ONE): kept[ONE], ("g", TWO): None}
    assert len(text.splitlines()) == 4, "an offset a line"
    one_a_line = "".join(json.dumps(row) + "\n" for row in document["rows"])
    assert back(one_a_line) == back(text)
    assert back(json.dumps(document["rows"], indent=4)) == back(text)
    assert back(json.dumps(document, indent=2)) == back(text)


@example("/", {TopicPartition("t", 0): CommittedOffset(5)}, "csv")
@example("/consumers/g/offsets/t/0:1", {TopicPartition("t", 0): CommittedOffset(5)}, "csv")
@example("{}", {TopicPartition("t", 0): CommittedOffset(5)}, "csv")
@example("[,1", {TopicPartition("t", 0): CommittedOffset(5)}, "csv")
@example("a,1,2", {TopicPartition("t", 0): CommittedOffset(5)}, "zk")
@given(
    group=st.text(min_size=1).filter(lambda text: "\r" not in text and text.isprintable() and text == text.strip()),
    offsets=st.dictionaries(
        st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.builds(CommittedOffset, st.integers(0, 2**63 - 1)),
        min_size=1,
    ),
    form=st.sampled_from(["zk", "csv", "json"]),
)
def test_what_is_written_is_read(group: str, offsets: dict[TopicPartition, CommittedOffset], form: Form) -> None:
    assert back(text_of(group, offsets, form)) == {(group, name): one for name, one in offsets.items()}


@each("form", ["zk", "csv", "json"])
def test_no_offsets_at_all(form: Form) -> None:
    assert parse(text_of("g", {}, form)) == ([], [])


BAD_ZK = """\
/consumers/g/offsets/t/0:1
/consumers/g/offsets/t/1:x
/consumers/g/offsets/t/-1:1
/consumers/g/owners/t/2:1

rubbish
/consumers/g/offsets/t t/3:1
/consumers/g/offsets/t/4:-3
/consumers/g/offsets/t/0:9
/consumers/g/offsets/t/5:99999999999999999999
/consumers/g/offsets/t/6:6
"""
BAD_JSON = """\
{"rows": [
  {"group": "g", "topic": "t", "partition": 0, "offset": 1},
  {"group": "g", "topic": "t", "partition": 1.5, "offset": 1},
  {"group": "", "topic": "t", "partition": 2, "offset": 1},
  {"group": "g", "topic": "t", "partition": true, "offset": 1},
  17,
  {"group": "g", "topic": "t", "partition": 3},
  {"group": "g", "topic": "t", "partition": 4, "offset": 4, "metadata": 9},
  {"group": "g", "topic": "t", "partition": 6, "offset": 6},
  {"group": "g" "topic": "t", "partition": 7, "offset": 6}
]}
"""


@each(
    ("text", "good", "bad"),
    [
        (BAD_ZK, [1, 11], [2, 3, 4, 6, 7, 8, 9, 10]),
        (BAD_JSON, [2, 9], [3, 4, 5, 6, 7, 8, 10]),
        ("g,t,0,1\ng,t,one,1\ng,t,1\ng\ng,t,2,2\n", [1, 5], [2, 3, 4]),
        ('{"rows": [{"group": "g", "topic": "t", "partition": 0, "offset": 1},\n', [1], [2]),
        ("\0\xff", [], [1]),
        ("{", [], [1]),
        ("[1", [], [1, 1]),
    ],
)
def test_every_bad_line_is_named(text: str, good: list[int], bad: list[int]) -> None:
    lines, wrong = parse(text)
    assert [line.number for line in lines] == good
    assert [one.number for one in wrong] == bad
    assert all(one.reason for one in wrong)


def test_the_group_of_the_file_may_be_replaced() -> None:
    assert back(text_of("g", {ONE: CommittedOffset(7)}, "zk"), "other") == {("other", ONE): CommittedOffset(7)}


@given(st.text())
def test_no_text_is_more_than_good_and_bad_lines(text: str) -> None:
    parse(text)
    parse("{" + text)
    parse("/" + text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"/consumers/g/offsets/t/0:1\n\xff\xfe\n")
    lines, bad = read(file)
    assert [line.number for line in lines] == [1]
    assert [one.number for one in bad] == [2]
