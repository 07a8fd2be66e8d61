from __future__ import annotations

import pytest

from klog.coordination.connect_string import ConnectString, mode_in
from klog.errors import UsageError
from tests.rows import each


@each(
    ("text", "servers", "chroot"),
    [
        ("h:2181", (("h", 2181),), ""),
        ("h", (("h", 2181),), ""),
        ("h:1/", (("h", 1),), ""),
        ("a:1,b:2,c:3/kafka", (("a", 1), ("b", 2), ("c", 3)), "/kafka"),
        (" a:1, b:2/x/y/ ", (("a", 1), ("b", 2)), "/x/y"),
        ("[::1]:2182/k", (("::1", 2182),), "/k"),
        ("[::1]", (("::1", 2181),), ""),
    ],
)
def test_parse(text: str, servers: object, chroot: str) -> None:
    parsed = ConnectString.parse(text)
    assert (parsed.servers, parsed.chroot) == (servers, chroot)
    assert ConnectString.parse(str(parsed)) == parsed


@each("text", ["", ":2181", "h:x", "h:0", "h:70000", "a:1,,b:2", "a:1/k,b:2/k", "h:1/a//b", "h:1/a/..", "h:1/./a"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ConnectString.parse(text)


def test_mode() -> None:
    assert mode_in("Zookeeper version: 3\nMode: standalone\nNode count: 5") == "standalone"
    assert mode_in("This ZooKeeper instance is not currently serving requests\n") is None
