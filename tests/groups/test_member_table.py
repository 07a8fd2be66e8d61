"""What members agree on, without a look at each of them."""

from __future__ import annotations

import pytest

from klog.errors import InconsistentGroupProtocol
from klog.groups import member_table
from klog.groups.member_table import MemberTable
from klog.groups.members import Join, member_of


def join(name: str, *protocols: str, instance: str | None = None) -> Join:
    return Join(
        member_id=name,
        instance_id=instance,
        client_id="c",
        host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=tuple((one, b"") for one in protocols),
        new_id=name,
        must_ask_twice=False,
    )


def test_a_join_looks_at_no_other_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a crowd of thousands each did, and the event loop was silent until the broker ended itself."""
    monkeypatch.setattr(member_table, "common_protocols", lambda members: pytest.fail("it looks at them all"))
    table = MemberTable("g")
    for number in range(3):
        joins = join(f"m{number}", "range", f"own-{number}")
        table.check_protocols(joins, None, "consumer")
        table.add(member_of(joins, joins.member_id))


def test_members_come_go_and_change_what_they_support() -> None:
    table = MemberTable("g")
    first, second = join("a", "range", "sticky", instance="i"), join("b", "range")
    for one in (first, second):
        table.add(member_of(one, one.member_id))
    table.check_protocols(join("b", "sticky"), None, "consumer")  # its own former word does not count
    with pytest.raises(InconsistentGroupProtocol, match="range"):
        table.check_protocols(join("c", "sticky"), None, "consumer")
    table.takes(table["b"], join("b", "sticky"))
    table.check_protocols(join("c", "sticky"), None, "consumer")
    newer = join("d", "range", "sticky", instance="i")
    table.replace(table["a"], member_of(newer, "d"))
    table.remove(table["b"])
    table.check_protocols(join("c", "range"), None, "consumer")
    table.remove(table["d"])
    table.check_protocols(join("c", "other"), None, "")
