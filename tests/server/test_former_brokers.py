"""Brokers that have left are named for a moment more, and those who come back as what they are now."""

from __future__ import annotations

from klog.server.former_brokers import KEPT_MAX, LINGER_S, FormerBrokers
from klog.server.image import BrokerImage


def test_who_left_is_named_for_a_while() -> None:
    now_s = [100.0]
    one, two, three = (BrokerImage(number, "host", 9000 + number, None, number) for number in (1, 2, 3))
    former_brokers = FormerBrokers(lambda: now_s[0])
    assert former_brokers.with_former({1: one}) == {1: one}
    former_brokers.note({1: one, 2: two, 3: three}, {1: one, 3: three})
    now_s[0] += LINGER_S / 2
    former_brokers.note({1: one, 3: three}, {1: one})
    assert former_brokers.with_former({1: one}) == {1: one, 2: two, 3: three}
    now_s[0] += LINGER_S / 2
    assert former_brokers.with_former({1: one}) == {1: one, 3: three}
    now_s[0] += LINGER_S / 2
    assert former_brokers.with_former({1: one}) == {1: one}


def test_who_comes_back_is_named_where_it_is_now() -> None:
    now_s = [0.0]
    one, before = BrokerImage(1, "host", 9001, None, 1), BrokerImage(2, "old", 9002, None, 2)
    after = BrokerImage(2, "new", 9003, None, 3)
    former_brokers = FormerBrokers(lambda: now_s[0])
    former_brokers.note({1: one, 2: before}, {1: one})
    former_brokers.note({1: one}, {1: one, 2: after})
    assert former_brokers.with_former({1: one, 2: after}) == {1: one, 2: after}


def test_those_long_gone_are_not_kept() -> None:
    now_s = [0.0]
    former_brokers = FormerBrokers(lambda: now_s[0])
    for number in range(1000):
        former_brokers.note({number: BrokerImage(number, "host", 1, None, number)}, {})
        now_s[0] += LINGER_S / 8
    assert len(former_brokers._left) == 8


def test_when_each_left_is_kept_until_it_returns() -> None:
    now_ms = [1_000]
    one, two, three = (BrokerImage(number, "host", 9000 + number, None, number) for number in (1, 2, 3))
    former_brokers = FormerBrokers(lambda: 0.0, lambda: now_ms[0])
    former_brokers.note({1: one, 2: two, 3: three}, {1: one, 3: three})
    now_ms[0] = 2_000
    former_brokers.note({1: one, 3: three}, {1: one})
    assert former_brokers.left_ms == {2: 1_000, 3: 2_000}
    former_brokers.note({1: one}, {1: one, 2: two})
    assert former_brokers.left_ms == {3: 2_000}
    for number in range(10, 2 * KEPT_MAX):
        former_brokers.note({number: BrokerImage(number, "host", 1, None, number)}, {})
    assert len(former_brokers.left_ms) == KEPT_MAX
