"""Nodes that are closed, against a real server: who may do what, and a tree closed and opened while it is used.

Sessions: the cluster's owner, the paper's consumers (streams), somebody with another password, and a stranger.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin import znode_acls as admin
from klog.coordination import paths
from klog.coordination.znode_acls import (
    ALL,
    EVERYBODY_READ,
    NAME_CHARS_MAX,
    OF_STREAMS,
    OPEN,
    Acl,
    Identities,
    acls_of,
    identity_of,
    is_open,
    is_sensitive,
)
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Create, Delete, SetData, ZooKeeper, batches, size_bytes
from klog.coordination.zookeeper_access import ZooKeeperAccess, ZooKeeperServers
from klog.errors import Refused, UsageError
from klog.security.errors import NotAllowedByZooKeeper
from tests.rows import each

OWNER = identity_of("klog", "owners-password")
STREAMS = identity_of("streams", "streams-password")
OF_OWNER = ZooKeeperAccess("klog", "owners-password", True, None, STREAMS)
OF_CONSUMER = ZooKeeperAccess("streams", "streams-password", True, OWNER)
WRONG_PASSWORD = ZooKeeperAccess("klog", "guessed", True, None, STREAMS)
IDENTITIES = Identities(OWNER, STREAMS)

Open = Callable[[ZooKeeperAccess | None], ZooKeeper]


@pytest.fixture
def session(zk_chroot: str) -> Iterator[Open]:
    """`session(access)`: a session that comes in that way, None for a stranger's."""
    opened: list[ZooKeeper] = []

    def open_one(access: ZooKeeperAccess | None) -> ZooKeeper:
        made = ZooKeeper(zk_chroot if access is None else ZooKeeperServers(zk_chroot, access))
        opened.append(made)
        made.start()
        return made

    yield open_one
    for one in opened:
        one.stop()


def tree(zookeeper: ZooKeeper, top: str = "/") -> list[str]:
    """Every path, parents first."""
    found = [top]
    for path in found:
        found += [f"{path.rstrip('/')}/{name}" for name in zookeeper.children(path)]
    return found


def lists(zookeeper: ZooKeeper) -> dict[str, set[Acl]]:
    """Every node's list."""
    every = tree(zookeeper)
    return {path: set(found or ()) for path, found in zip(every, zookeeper.acls_many(every), strict=True)}


def wanted(every: Sequence[str]) -> dict[str, set[Acl]]:
    return {path: set(acls_of(path, IDENTITIES)) for path in every}


# --- The rules --------------------------------------------------------------------------------------------------------


def test_the_identity_is_zookeepers_own() -> None:
    """As ZooKeeper's ``DigestAuthenticationProvider`` prints it for ``super:test``."""
    assert identity_of("super", "test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


@given(
    st.lists(st.text("abc-_%.", min_size=1, max_size=5), max_size=4),
    st.sampled_from(sorted(vars(paths).values(), key=str)),
)
def test_no_path_is_left_open(below: list[str], top: object) -> None:
    if not isinstance(top, str) or not top.startswith("/"):
        return
    path = "/".join([top, *below])
    found = acls_of(path, IDENTITIES)
    assert not is_open(found)
    assert Acl(ALL, "digest", OWNER) in found
    assert (EVERYBODY_READ in found) == (not is_sensitive(path))
    assert any(one.identity == STREAMS for one in found) == any(f"{path}/".startswith(f"{one}/") for one in OF_STREAMS)


@each("name", ["", "a:b", "a b", "x" * (NAME_CHARS_MAX + 1)])
def test_names_that_an_identity_cannot_have(name: str) -> None:
    from klog.client.zookeeper_access import read_access

    with pytest.raises(UsageError):
        read_access({"zookeeper.username": name, "zookeeper.password": "p"}, "test")


# --- Who may do what --------------------------------------------------------------------------------------------------


def test_what_the_owner_makes_is_closed_in_each_way_to_make_it(session: Open) -> None:
    owner = session(OF_OWNER)
    admin.close_top(owner)
    owner.create(paths.SECRET, b"secret", parents=True)
    owner.create("/controller", b"1", ephemeral=True)
    owner.ensure_path(paths.CONFIG_CHANGES)
    owner.ensure_paths([paths.consumer_owners("g"), paths.COMMITS, paths.USER_CONFIGS])
    owner.multi([Create("/admin"), Create("/config/changes/c-", b"", sequence=True), Create("/config/users/a")])
    assert owner.children("/config/changes") == ["c-0000000000"]
    found = lists(owner)
    assert found == wanted(list(found))
    assert len(found) == 14


@pytest.mark.parametrize("access", [None, WRONG_PASSWORD], ids=["stranger", "wrong password"])
def test_others_read_what_is_no_secret_and_change_nothing(session: Open, access: ZooKeeperAccess | None) -> None:
    owner, other = session(OF_OWNER), session(access)
    admin.close_top(owner)
    owner.create(paths.SECRET, b"secret", parents=True)
    owner.create(paths.user_config("alice"), b"{}", parents=True)
    owner.ensure_paths([paths.TOPICS, paths.consumer_offsets("g")])
    for path in tree(owner):
        if is_sensitive(path):
            for read in (
                other.get,
                other.children,
                lambda one: other.get_many([one]),
                lambda one: other.acls_many([one]),
            ):
                with pytest.raises(NotAllowedByZooKeeper, match=path):
                    read(path)
        else:
            other.get(path)
            other.children(path)
        for write in (
            lambda one: other.set(one, b"mine"),
            lambda one: other.create(f"{one.rstrip('/')}/mine"),
            lambda one: other.multi([SetData(one, b"mine")]),
            lambda one: other.multi([Create(f"{one.rstrip('/')}/mine", ephemeral=True)]),
            lambda one: other.set_acls_many([(one, OPEN)]),
        ):
            with pytest.raises(NotAllowedByZooKeeper):
                write(path)
        if not owner.children(path):
            for delete in (other.delete, lambda one: other.multi([Delete(one)])):
                with pytest.raises(NotAllowedByZooKeeper):
                    delete(path)
    assert all(b"mine" not in owner.get(path).data for path in tree(owner))


def test_the_papers_consumers_write_the_nodes_of_groups_alone(session: Open) -> None:
    owner, streams = session(OF_OWNER), session(OF_CONSUMER)
    admin.close_top(owner)
    owner.ensure_paths([*OF_STREAMS, paths.TOPICS, paths.SECRET])
    streams.ensure_path(paths.consumer_ids("g"))
    streams.multi([Create(paths.consumer_id("g", "c"), b"", ephemeral=True), Create(paths.group("g"), b"{}")])
    streams.set(paths.group("g"), b"{1}")
    streams.delete(paths.consumer_id("g", "c"))
    for forbidden in (paths.TOPICS, paths.SECRET, "/"):
        with pytest.raises(NotAllowedByZooKeeper, match="streams"):
            streams.set(forbidden, b"mine")
    with pytest.raises(NotAllowedByZooKeeper):
        streams.set_acls_many([(paths.CONSUMERS, OPEN)])
    owner.set(paths.group("g"), b"{2}")
    owner.delete(paths.consumer_ids("g"))
    assert lists(owner) == wanted(tree(owner))


def test_an_error_says_which_node_and_what_is_missing(session: Open) -> None:
    owner, stranger = session(OF_OWNER), session(None)
    owner.ensure_path(paths.SECRET)
    with pytest.raises(NotAllowedByZooKeeper) as refused:
        stranger.set(paths.SECRET, b"")
    assert paths.SECRET in refused.value.message
    assert "zookeeper.username" in (refused.value.hint or "")
    assert refused.value.code == "ZOOKEEPER_NOT_ALLOWED" and refused.value.exit_code == 1


def test_the_largest_multi_with_the_longest_names_goes_through(session: Open) -> None:
    """Rule Z3: a node's list is in the request, and again in the transaction log."""
    longest = "n" * NAME_CHARS_MAX
    owner = session(ZooKeeperAccess(longest, "p", True, None, identity_of("m" * NAME_CHARS_MAX, "p")))
    owner.ensure_path(paths.GROUPS)
    groups = [[Create(f"{paths.GROUPS}/{number}")] for number in range(6000)]
    sent = list(batches(groups, lambda one: size_bytes(one, owner.address.chroot), MULTI_BYTES_MAX))
    assert len(sent) > 1
    owner.multi(sent[0])


def test_a_chroot_is_closed_and_the_folders_above_it_are_not(zk_chroot: str) -> None:
    other = f"{zk_chroot}/team/cluster"
    with ZooKeeper(ZooKeeperServers(other, OF_OWNER)) as owner, ZooKeeper(zk_chroot) as above:
        owner.start(create_chroot=True)
        above.start()
        assert set(owner.acls_many(["/"])[0] or ()) == set(acls_of("/", IDENTITIES))
        assert [set(one or ()) for one in above.acls_many(["/team"])] == [set(OPEN)]


# --- A tree that exists -----------------------------------------------------------------------------------------------


def fill(zookeeper: ZooKeeper, groups: int = 3) -> int:
    """Nodes as a cluster makes them; how many, with the root."""
    zookeeper.ensure_paths([*paths.PERSISTENT, paths.SECRET, paths.user_config("alice"), paths.CONTROLLER_EPOCH])
    zookeeper.ensure_paths([paths.consumer_offset(f"g{number}", "t", 0) for number in range(groups)])
    return len(tree(zookeeper))


def test_a_tree_is_closed_and_opened_again(session: Open) -> None:
    owner, stranger = session(OF_OWNER), session(None)
    count = fill(stranger)
    planned = admin.Walks(owner, IDENTITIES, dry_run=True).run()
    assert sum(row.changed for row in planned) == sum(row.znodes for row in planned) == count
    assert set(map(frozenset, lists(owner).values())) == {frozenset(OPEN)}  # a dry run changes nothing
    rows = admin.Walks(owner, IDENTITIES).run()
    assert [(row.path, row.znodes, row.changed) for row in rows] == [
        (row.path, row.znodes, row.changed) for row in planned
    ]
    assert not any(row.left for row in rows)
    assert lists(owner) == wanted(tree(owner))
    assert not any(row.changed for row in admin.Walks(owner, IDENTITIES).run())
    with pytest.raises(NotAllowedByZooKeeper):
        stranger.create("/mine")
    assert sum(row.changed for row in admin.Walks(owner, None).run()) == count
    assert set(map(frozenset, lists(stranger).values())) == {frozenset(OPEN)}


def test_a_walk_that_ends_anywhere_is_gone_on_with(session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended before each of its requests; the next walk does the rest. No node is open below a closed one then, but for
    those that the walk had not come to."""
    owner, stranger = session(OF_OWNER), session(None)
    count = fill(stranger)
    monkeypatch.setattr(admin, "AT_ONCE", 12)
    setting = owner.set_acls_many

    class Ended(Exception):
        pass

    for ends_after in itertools.count(1):
        left = iter(range(ends_after))

        def limited(changes: Sequence[tuple[str, Sequence[Acl]]], left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Ended
            setting(changes)

        monkeypatch.setattr(owner, "set_acls_many", limited)
        try:
            admin.Walks(owner, IDENTITIES).run()
            break
        except Ended:
            closed = sum(one == wanted([path])[path] for path, one in lists(owner).items())
            assert 0 < closed < count
        monkeypatch.setattr(owner, "set_acls_many", setting)
        admin.Walks(owner, IDENTITIES).run()
        assert lists(owner) == wanted(tree(owner))
        admin.Walks(owner, None).run()
    assert lists(owner) == wanted(tree(owner))
    assert ends_after > 3


def test_what_others_make_open_meanwhile_is_found(session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with the credentials and without zookeeper.set.acl makes open nodes all the time."""
    owner = session(OF_OWNER)
    careless = session(ZooKeeperAccess("klog", "owners-password"))
    fill(careless)
    setting, number = owner.set_acls_many, itertools.count()

    def and_another(changes: Sequence[tuple[str, Sequence[Acl]]]) -> None:
        setting(changes)
        careless.create(f"{paths.ACTS}/{next(number)}")

    monkeypatch.setattr(owner, "set_acls_many", and_another)
    rows = {row.path: row for row in admin.Walks(owner, IDENTITIES).run()}
    assert rows["/klog"].left > 0 and rows["/brokers"].left == 0


def test_who_would_be_locked_out_is_named(session: Open) -> None:
    owner, stranger, streams = session(OF_OWNER), session(None), session(OF_CONSUMER)
    fill(stranger)
    stranger.create(paths.broker(1), b"", ephemeral=True)
    owner.create(paths.broker(2), b"", ephemeral=True)
    stranger.ensure_paths([paths.consumer_ids("old"), paths.consumer_ids("new")])
    stranger.create(paths.consumer_id("old", "c"), b"", ephemeral=True)
    streams.create(paths.consumer_id("new", "c"), b"", ephemeral=True)
    assert admin.unready(owner, IDENTITIES) == [paths.broker(1), paths.consumer_id("old", "c")]
    with pytest.raises(Refused, match=paths.broker(1)):
        admin.check_ready(owner, IDENTITIES)
    for path in admin.unready(owner, IDENTITIES):
        stranger.delete(path)
    admin.check_ready(owner, IDENTITIES)
    admin.Walks(owner, IDENTITIES).run()
    admin.Walks(owner, None).run()
    admin.check_ready(owner, IDENTITIES)  # opening the tree has not made anybody look unready


def test_without_the_owners_credentials_nothing_is_begun(session: Open) -> None:
    for access in (None, OF_CONSUMER):
        with pytest.raises(UsageError):
            admin.owner_of(session(access))


def test_what_is_open_is_found_by_anybody(session: Open) -> None:
    owner, stranger = session(OF_OWNER), session(None)
    fill(stranger)
    assert {"/", paths.SECRET, "/klog"} <= set(admin.open_ones(stranger)) and admin.has_users(stranger)
    admin.Walks(owner, IDENTITIES).run()
    assert admin.open_ones(stranger) == admin.open_ones(owner) == []
    assert admin.has_users(owner) and not admin.has_users(stranger)
