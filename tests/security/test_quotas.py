"""Quotas without a broker: whose applies, how rates are measured, what is forgotten; against models, by a clock."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some

from klog.errors import InvalidRequest
from klog.security.quotas import (
    DEFAULT,
    DEFAULT_NODE,
    Entity,
    QuotaKey,
    QuotaTable,
    check_entity,
    check_value,
    parse_value,
    text_of,
)
from klog.security.rates import Meters, Rate, TokenBucket, Windows
from tests.rows import each

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
NAMES = (None, DEFAULT, "alice", "bob")
ENTITIES = [Entity(*names) for names in product(NAMES, NAMES) if names != (None, None)]
KAFKAS_ORDER = """
/config/users/alice/clients/app
/config/users/alice/clients/<default>
/config/users/alice
/config/users/<default>/clients/app
/config/users/<default>/clients/<default>
/config/users/<default>
/config/clients/app
/config/clients/<default>
"""
"""KIP-55, most specific first."""


def test_of_eight_levels_the_most_specific_counts() -> None:
    levels = [Entity.of_path(one.removeprefix("/config/")) for one in KAFKAS_ORDER.split()]
    assert [f"/config/{one.path}" for one in levels if one is not None] == KAFKAS_ORDER.split()
    quotas = {one: {PRODUCE: float(number)} for number, one in enumerate(levels, 1) if one is not None}
    scopes = [Entity("alice", "app")] * 2 + [Entity("alice", None)]
    scopes += [*([Entity("alice", "app")] * 2), Entity("alice", None), *([Entity(None, "app")] * 2)]
    for entity, scope in zip(list(quotas), scopes, strict=True):
        limit = QuotaTable(quotas).limit(PRODUCE, "alice", "app")
        assert limit is not None
        assert (limit.entity, limit.scope, limit.rate) == (entity, scope, quotas[entity][PRODUCE])
        del quotas[entity]
    assert not quotas
    assert QuotaTable(quotas).limit(PRODUCE, "alice", "app") is None


@given(some.lists(some.tuples(some.sampled_from(ENTITIES), some.sets(some.sampled_from(QuotaKey)).map(list))))
def test_a_table_that_changes_is_as_one_made_new(changes: list[tuple[Entity, list[QuotaKey]]]) -> None:
    table, model = QuotaTable(), {}
    for number, (entity, keys) in enumerate(changes, 1):
        values = dict.fromkeys(keys, float(number))
        table.limit(PRODUCE, "alice", "bob")
        table.change({entity: values})
        model[entity] = values
        new = QuotaTable(model)
        assert (table.quotas, table.keys, bool(table)) == (new.quotas, new.keys, bool(new))
        assert table.limit(PRODUCE, "alice", "bob") == new.limit(PRODUCE, "alice", "bob")
    assert table.keys == {key for values in model.values() for key in values}


@given(
    some.dictionaries(some.sampled_from(ENTITIES), some.sets(some.sampled_from(QuotaKey)).map(list)),
    some.sampled_from(("alice", "bob", "ANONYMOUS")),
    some.sampled_from(("alice", "bob", "")),
)
def test_each_kind_of_quota_is_looked_up_by_itself(
    having: dict[Entity, list[QuotaKey]], user: str, client: str
) -> None:
    """The model: of the entities that fit, the one that says most of the user, then most of the client id."""
    rates = {entity: float(number) for number, entity in enumerate(having, 1)}
    table = QuotaTable({entity: dict.fromkeys(keys, rates[entity]) for entity, keys in having.items()})

    def names(name: str | None, actual: str) -> int | None:
        """How closely the name fits: 0 for any, 2 for the very one; None where it does not."""
        return 0 if name is None else 1 if name == DEFAULT else 2 if name == actual else None

    for key in QuotaKey:
        fitting = [
            ((of_user, of_client), entity)
            for entity, keys in having.items()
            if key in keys
            and (of_user := names(entity.user, user)) is not None
            and (of_client := names(entity.client, client)) is not None
        ]
        limit = table.limit(key, user, client)
        if not fitting:
            assert limit is None
            continue
        entity = max(fitting, key=lambda one: one[0])[1]
        assert limit is not None
        assert (limit.entity, limit.rate) == (entity, rates[entity])
        assert limit is table.limit(key, user, client)


@given(some.text(min_size=1), some.none() | some.text())
def test_any_name_has_a_path_and_comes_back_from_it(user: str, client: str | None) -> None:
    try:
        entity = check_entity(Entity(user, client))
    except InvalidRequest:
        assert {user, client} & {".", ".."} or any("\ud800" <= one <= "\udfff" for one in f"{user}{client}")
        return
    assert Entity.of_path(entity.path) == entity
    assert entity.path.count("/") == (1 if client is None else 3)
    assert entity.path.isascii()
    assert DEFAULT_NODE not in entity.path.split("/") or client == DEFAULT


@each("path", ["", "users", "users/", "topics/t", "users/a/b", "users/a/clients/", "ips/", "ips/a/b"])
def test_other_paths_are_of_no_entity(path: str) -> None:
    assert Entity.of_path(path) is None


@each(
    ("given", "plain"),
    [("10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.7", "10.0.0.7"), ("2001:DB8:0::1", "2001:db8::1"), (DEFAULT, DEFAULT)],
)
def test_an_address_is_kept_as_connections_have_it(given: str, plain: str) -> None:
    entity = check_entity(Entity(ip=given))
    assert entity.ip == plain
    assert Entity.of_path(entity.path) == entity
    for other in (Entity("alice", ip=given), Entity(client="app", ip=given)):
        with pytest.raises(InvalidRequest):
            check_entity(other)


@each("ip", ["localhost", "10.0.0", "10.0.0.7/8", "1", " 10.0.0.7", "../x", "\ud800", "x" * 2000])
def test_what_is_no_address_is_refused(ip: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_entity(Entity(ip=ip))
    assert len(refused.value.message) < 500


def test_the_quota_of_an_address_comes_before_the_default_one() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    table = QuotaTable({Entity(ip=DEFAULT): {key: 5.0}, Entity(ip="10.0.0.7"): {key: 9.0}})
    assert not table.limits_requests
    for ip, rate, entity in (("10.0.0.7", 9.0, Entity(ip="10.0.0.7")), ("::1", 5.0, Entity(ip=DEFAULT))):
        limit = table.connection_limit(ip)
        assert limit is not None
        assert (limit.rate, limit.entity, limit.scope.ip) == (rate, entity, ip)
        assert ip in limit.shared_by
    table.change({Entity(ip=DEFAULT): {}, Entity("alice"): {PRODUCE: 1.0}})
    assert table.connection_limit("::1") is None
    assert table.limits_requests


@each("user", [".", "..", "x" * 1025, "\ud800"])
def test_names_that_zookeeper_cannot_have_are_refused(user: str) -> None:
    for entity in (Entity(user), Entity(client=user), Entity("alice", user)):
        with pytest.raises(InvalidRequest):
            check_entity(entity)
    with pytest.raises(InvalidRequest):
        check_entity(Entity())


@each(
    ("key", "value"),
    [
        *((key, value) for key in QuotaKey for value in (0.0, -1.0, math.inf, -math.inf, math.nan)),
        (PRODUCE, 0.5),
        (PRODUCE, 1.5),
        (QuotaKey.CONSUMER_BYTE_RATE, 1e300),
        (QuotaKey.CONNECTION_CREATION_RATE, 2.0**31),
    ],
)
def test_values_that_mean_nothing_are_refused(key: QuotaKey, value: float) -> None:
    with pytest.raises(InvalidRequest):
        check_value(key, value)
    with pytest.raises(InvalidRequest):
        parse_value(key, str(value))


def test_values_are_kept_as_kafka_keeps_them() -> None:
    assert text_of(PRODUCE, check_value(PRODUCE, 1048576.0000001)) == "1048576"
    assert text_of(QuotaKey.REQUEST_PERCENTAGE, 12.5) == "12.5"
    assert parse_value(QuotaKey.REQUEST_PERCENTAGE, "200.0") == 200
    assert parse_value(PRODUCE, "1024") == 1024
    with pytest.raises(InvalidRequest):
        parse_value(PRODUCE, "1 MB")


# --- rates ------------------------------------------------------------------------------------------------------------

WINDOWS = some.builds(Windows, some.integers(1, 12), some.sampled_from((0.5, 1.0, 3.0)))
STEPS = some.lists(some.tuples(some.sampled_from((0.0, 0.1, 0.4, 1.0, 2.5, 40.0)), some.integers(0, 1000)), max_size=40)


@given(WINDOWS, STEPS, some.floats(0.5, 1e4))
def test_a_rate_is_what_the_last_windows_have_by_their_time(
    windows: Windows, steps: list[tuple[float, int]], limit: float
) -> None:
    rate, now_s, model = Rate(windows), 1000.0, []
    for pause_s, amount in steps:
        now_s += pause_s
        rate.add(amount, now_s)
        model.append((int(now_s / windows.size_s), amount))
        first = int(now_s / windows.size_s) - windows.number + 1
        counted = sum(one for window, one in model if window >= first)
        assert rate.counted(now_s) == pytest.approx(counted)
        covered_s = max(now_s - first * windows.size_s, 0.001)
        wait_s = rate.wait_s(limit, now_s)
        if counted / covered_s <= limit:
            assert wait_s == pytest.approx(0, abs=1e-6)
        else:  # Kafka's: (rate - limit) / limit * time of the windows
            assert wait_s == pytest.approx((counted / covered_s - limit) / limit * covered_s)
    assert rate.silent_after_s() <= now_s + windows.all_s
    assert rate.wait_s(limit, now_s + windows.all_s) == 0
    assert len(rate._counts) <= windows.number


def test_who_waits_as_told_keeps_to_the_limit() -> None:
    for number, amount in ((2, 30.0), (11, 30.0), (11, 900.0)):
        rate, now_s, taken = Rate(Windows(number, 1)), 500.0, 0.0
        while now_s < 800:
            rate.add(amount, now_s)
            taken += amount
            now_s += max(rate.wait_s(100, now_s), 0.001)
        steady = taken - rate.allowed_at_once(100) - amount
        over = amount / (number * 100)  # the last one before a wait, in each round of windows
        assert 0.85 <= steady / ((now_s - 500) * 100) <= 1 + over, (number, amount)


def test_what_was_counted_can_be_taken_back() -> None:
    rate = Rate(Windows(3, 1))
    rate.add(500, 10.2)
    rate.add(-500, 10.2)
    assert rate.counted(10.3) == 0
    rate.add(1, 10.4)
    assert rate.counted(12.9) == 1
    assert rate.counted(13.0) == 0


@given(WINDOWS, STEPS, some.floats(0.5, 1e3))
def test_a_bucket_fills_at_the_limit(windows: Windows, steps: list[tuple[float, int]], limit: float) -> None:
    bucket, now_s = TokenBucket(windows), 1000.0
    burst = limit * windows.all_s
    tokens = burst
    for pause_s, amount in steps:
        now_s += pause_s
        tokens = min(tokens + limit * pause_s, burst)
        assert bucket.wait_s(limit, now_s) == pytest.approx(max(0, -tokens) / limit, abs=1e-6)
        bucket.take(amount, limit, now_s)
        tokens -= amount
    assert bucket.wait_s(limit, now_s) == pytest.approx(max(0, -tokens) / limit, abs=1e-6)
    if steps:  # and then it is as a new one
        full_s = bucket.silent_after_s()
        assert min(tokens + limit * (full_s - now_s), burst) == pytest.approx(burst, rel=1e-6)


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_a_hundred_thousand_client_ids_are_not_all_kept() -> None:
    windows = Windows(11, 1)
    meters: Meters[str, Rate] = Meters(lambda: Rate(windows), most=1000)
    for number in range(100_000):
        meters.of(f"made-up-{number}", 1.0).add(1, 1.0)
        assert len(meters) <= 1000
    assert meters.cut_short == 99_000


def test_the_silent_are_forgotten_and_nothing_else() -> None:
    windows = Windows(2, 1)
    meters: Meters[int, Rate] = Meters(lambda: Rate(windows))
    for number in range(500):
        meters.of(number, 10.0 + number / 100).add(1, 10.0 + number / 100)
    assert len(meters) <= 500
    now_s = 15.0
    loud = meters.of(499, now_s)
    assert loud.counted(now_s) == 1 + 99 + 1 - 100
    for number in range(1000, 1300):
        meters.of(number, now_s).add(1, now_s)
    assert meters.of(499, now_s) is loud
    assert len(meters) <= 500
    assert meters.cut_short == 0
