"""Which cluster: the order of sources, both addresses from one source, and what is said where none or several are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.admin.local_state import Plan, forget_cluster, note_cluster, save_plan, the_recorded_folder
from klog.cli.flags import GlobalFlags
from klog.cli.target import NoCluster, resolve
from klog.errors import NoSuchThing
from tests.cli.runner import klog

PROFILES = """
[staging]
bootstrap_server = "staging:9092"
zookeeper = "staging-zk:2181/klog"
cluster_id = "abc"
[half]
zookeeper = "half-zk:2181"
"""


@pytest.fixture
def profiles(home: Path) -> Path:
    home.mkdir()
    (home / "profiles.toml").write_text(PROFILES)
    return home


def test_flags_are_highest_and_take_nothing_from_below(profiles: Path) -> None:
    environment = {"KLOG_BOOTSTRAP_SERVER": "env:1", "KLOG_ZOOKEEPER": "env:2", "KLOG_PROFILE": "staging"}
    target = resolve(GlobalFlags(bootstrap_server="flag:1"), environment, profiles)
    assert (target.bootstrap, target.zookeeper, target.source) == ("flag:1", None, "flag -B")
    target = resolve(GlobalFlags(zookeeper="flag:2"), environment, profiles)
    assert (target.bootstrap, target.zookeeper, target.source) == (None, "flag:2", "flag -z")
    target = resolve(GlobalFlags(bootstrap_server="a:1", zookeeper="b:2"), environment, profiles)
    assert (target.bootstrap, target.zookeeper, target.source) == ("a:1", "b:2", "flag -B and -z")
    assert resolve(GlobalFlags(profile="half"), environment, profiles).zookeeper == "half-zk:2181"


def test_the_environments_addresses_go_before_its_profile(profiles: Path) -> None:
    target = resolve(GlobalFlags(), {"KLOG_BOOTSTRAP_SERVER": "env:1", "KLOG_PROFILE": "staging"}, profiles)
    assert (target.bootstrap, target.zookeeper, target.source) == ("env:1", None, "KLOG_BOOTSTRAP_SERVER")
    target = resolve(GlobalFlags(), {"KLOG_PROFILE": "staging"}, profiles)
    assert (target.bootstrap, target.zookeeper, target.cluster_id) == ("staging:9092", "staging-zk:2181/klog", "abc")
    assert "profile staging" in target.source and "KLOG_PROFILE" in target.source


@given(
    flag=st.sampled_from(["", "B", "z", "Bz", "profile"]),
    environment=st.sets(st.sampled_from(["KLOG_BOOTSTRAP_SERVER", "KLOG_ZOOKEEPER", "KLOG_PROFILE"])),
)
def test_both_addresses_always_come_from_one_source(
    flag: str, environment: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "target-home"
    folder.mkdir(exist_ok=True)
    (folder / "profiles.toml").write_text('[p]\nbootstrap_server = "profile"\nzookeeper = "profile"\n')
    flags = GlobalFlags(
        bootstrap_server="flag" if "B" in flag else None,
        zookeeper="flag" if "z" in flag else None,
        profile="p" if flag == "profile" else None,
    )
    values = {name: "p" if name == "KLOG_PROFILE" else "env" for name in environment}
    try:
        target = resolve(flags, values, folder)
    except NoCluster:
        assert not flag and not environment
        return
    assert len({target.bootstrap, target.zookeeper} - {None}) == 1
    expected = "flag" if flag in ("B", "z", "Bz") else "profile" if flag == "profile" else None
    if expected is None:
        expected = "env" if environment - {"KLOG_PROFILE"} else "profile"
    assert (target.bootstrap or target.zookeeper) == expected


def test_a_profile_that_is_not_there_says_where_and_what(profiles: Path) -> None:
    with pytest.raises(NoSuchThing, match="'prod'") as missing:
        resolve(GlobalFlags(profile="prod"), {}, profiles)
    assert "staging" in (missing.value.hint or "")
    with pytest.raises(NoSuchThing) as near:
        resolve(GlobalFlags(profile="stagin"), {}, profiles)
    assert "mean staging?" in (near.value.hint or "")
    (profiles / "profiles.toml").unlink()
    with pytest.raises(NoSuchThing, match=r"profiles\.toml"):
        resolve(GlobalFlags(profile="staging"), {}, profiles)


def test_no_cluster_at_all(home: Path) -> None:
    with pytest.raises(NoCluster) as none:
        resolve(GlobalFlags(), {}, home)
    assert "klog up" in (none.value.hint or "") and str(home) in none.value.message


def test_verbose_says_which_cluster_and_who_said_so(dead_address: str) -> None:
    ran = klog("topic", "list", "-v", env={"KLOG_BOOTSTRAP_SERVER": dead_address})
    assert f"cluster: {dead_address} (from KLOG_BOOTSTRAP_SERVER)" in ran.stderr


def test_the_one_cluster_that_was_here_is_meant_and_none_by_chance(home: Path, tmp_path: Path) -> None:
    """After a reboot nothing runs: no empty cluster is started beside the one that was there."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_plan(tmp_path / name, Plan(brokers=2, port=1))
    home.mkdir()
    assert the_recorded_folder(home) is None and klog("status").code == 1
    note_cluster(home, tmp_path / "one", "127.0.0.1:1,127.0.0.1:2", "127.0.0.1:3")
    assert the_recorded_folder(home) == (tmp_path / "one").resolve()
    down = klog("status", "-o", "json")
    assert down.code == 1 and down.about["verdict"] == "DOWN"
    assert f"klog up --detach --dir {tmp_path / 'one'}" in down.rows[0]["do"]
    assert [one["state"] for one in down.about["brokers"]] == ["dead", "dead"]
    note_cluster(home, tmp_path / "two", "127.0.0.1:1", "127.0.0.1:3")
    for words in (("up", "--detach"), ("status",)):
        several = klog(*words, "-o", "json")
        assert several.code != 0 and all(str(tmp_path / name) in several.error["message"] for name in ("one", "two"))
    forget_cluster(home, tmp_path / "one")
    (tmp_path / "two" / "cluster.json").unlink()
    assert the_recorded_folder(home) is None, "what is no longer there is not meant"
