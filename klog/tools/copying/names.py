"""Which topics and groups a mirror copies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from klog.errors import UsageError
from klog.names import regular_expression


class TopicNames:
    """Topics whose name matches a regular expression, and none of others."""

    def __init__(self, wanted: Sequence[str], unwanted: Sequence[str] = ()) -> None:
        """UsageError for an invalid expression."""
        self._wanted = [regular_expression(text, "--topic") for text in wanted]
        self._unwanted = [regular_expression(text, "--exclude") for text in unwanted]

    def __str__(self) -> str:
        return ", ".join(repr(one.pattern) for one in self._wanted)

    def __contains__(self, name: str) -> bool:
        if name.startswith("__"):  # a cluster's own (Kafka's offsets, its transactions)
            return False
        return _matches(name, self._wanted) and not _matches(name, self._unwanted)


class GroupNames:
    """Groups by their names, with commas between, or by regular expressions for whole names."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        """UsageError for an invalid expression."""
        self.named: list[str] = []
        self.expressions: list[re.Pattern[str]] = []
        for text in texts:
            if re.search(r"[\\^$*+?()\[\]{}|]", text):
                self.expressions.append(regular_expression(text, "--groups"))
            else:
                self.named += filter(None, text.split(","))
        if texts and not self:
            raise UsageError("--groups is empty", hint="--groups '.*' selects all")

    def __bool__(self) -> bool:
        return bool(self.named or self.expressions)

    def among(self, there: Iterable[str]) -> list[str]:
        """Those to ask for, of all that there are; one that is named need not be there yet."""
        return list(dict.fromkeys([*self.named, *(name for name in there if _matches(name, self.expressions))]))


def _matches(name: str, expressions: Sequence[re.Pattern[str]]) -> bool:
    return any(one.fullmatch(name) for one in expressions)
