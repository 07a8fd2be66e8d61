"""``subscribePattern`` means what Java's `Pattern.matches` does: what is expected here was asked of a JVM."""

from __future__ import annotations

import re
import string

from klog.errors import UsageError
from klog.spark.java_pattern import TOPIC_CHARS, compiled
from klog.spark.options import SourceOptions

NAMES = (
    "clicks",
    "clicks-2",
    "Clicks",
    "CLICKS",
    "orders.eu",
    "orders.us",
    "a_b",
    "a.b",
    "7",
    "x",
    "aaa",
    "Q",
    "E",
    "-",
)

MATCHES = {
    r"\p{Lower}+": {"clicks", "x", "aaa"},
    r"\p{javaLowerCase}+": {"clicks", "x", "aaa"},
    r"\p{IsAlphabetic}+": {"clicks", "Clicks", "CLICKS", "x", "aaa", "Q", "E"},
    r"\p{Lu}\p{L}*": {"Clicks", "CLICKS", "Q", "E"},
    r"\pL+": {"clicks", "Clicks", "CLICKS", "x", "aaa", "Q", "E"},
    r"\P{Lower}+": {"CLICKS", "7", "Q", "E", "-"},
    r"\p{Alpha}+[\p{Punct}\d]+": {"clicks-2"},
    r"[\p{Lower}&&[^aeiou]]": {"x"},
    r"[a-z&&[^a-w]]|[[A-F][0-9]]": {"x", "7", "E"},
    r"[^\p{Lower}]+": {"CLICKS", "7", "Q", "E", "-"},
    r"\p{IsLatin}\p{Pc}\p{script=Latin}": {"a_b"},
    r"\Qa.b\E|\Qorders.\E.*": {"a.b", "orders.eu", "orders.us"},
    r"[\Q.-\E\w]{3}": {"aaa", "a_b", "a.b"},
    r"(?<same>a)\k<same>+": {"aaa"},
    r"(?i)clicks": {"clicks", "Clicks", "CLICKS"},
    r"(?i)[^c]": {"7", "x", "Q", "E", "-"},
    r"orders\.(?!us)\p{Alnum}++\z": {"orders.eu"},
    r"\x{61}[\x{5f}.]\x62": {"a_b", "a.b"},
    r"\p{Space}*x\h*": {"x"},
    r"[.-]": {"-"},
    r"[]x-]": {"x", "-"},
    r"orders[.](?<=s[.])[eu]{2}": {"orders.eu"},
    r"a(?i)[a-c]+|7": {"aaa", "7"},
    r"(?i:CL)icks|(?i)e|q": {"E", "clicks", "Q", "Clicks"},
    r"(?i)a(?-i)A*|clicks": {"clicks"},
    r"(?dU)\w": {"E", "x", "7", "Q"},
    r"x|\0141{3}": {"aaa", "x"},
    r"[\w-.]{3}": {"a.b", "a_b", "aaa"},
    r"\Gorders\H+": {"orders.eu", "orders.us"},
    r"[&&x7]": {"x", "7"},
    r"(a(?i)A)+|-": {"-"},
    r"\cA|\e|\R|[\cA]|\X": {"-", "E", "7", "x", "Q"},
}


def test_it_matches_what_java_does() -> None:
    patterns = {text: compiled(text) for text in MATCHES}
    found = {text: {name for name in NAMES if pattern.fullmatch(name)} for text, pattern in patterns.items()}
    assert {text: names for text, names in found.items() if names != MATCHES[text]} == {}


def test_a_class_is_written_out_of_what_names_may_have() -> None:
    assert frozenset(string.ascii_lowercase) == {one for one in TOPIC_CHARS if compiled(r"\p{Ll}").fullmatch(one)}
    assert compiled(r"\P{ASCII}|[a&&b]").fullmatch("a") is None


REFUSED = (
    "a{,3}",
    "{",
    "(?#c)a",
    "(?P<n>a)",
    "a)",
    "(?x)a#b",
    r"(?i)[a[^b]]",
    r"\p{Lowest}",
    r"\p{",
    r"\p",
    "[a",
    "[a&&]",
    r"[\y]",
    r"[z-a]",
    "(",
    "\\",
    r"[\x{110000}]",
)


def is_refused(text: str) -> bool:
    try:
        compiled(text)
    except re.error:
        pass
    else:
        return False
    try:
        SourceOptions.parse({"bootstrap.servers": "h:1", "subscribePattern": text})
    except UsageError as error:
        return "subscribePattern" in str(error)
    return False


def test_what_is_none_is_refused() -> None:
    assert [text for text in REFUSED if not is_refused(text)] == []
