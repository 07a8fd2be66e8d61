"""Every setting: one that is said to have an effect is read, one that is said to have none is read nowhere.

Where a setting is read, its name stands in the code as a text of its own; what is left out are the tables themselves.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from klog.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, LogConfig, topic_values
from klog.config.topic import OF_TOPICS_ALONE, may_be_led_uncleanly
from tests.rows import each

KLOG = Path(__file__).resolve().parents[2] / "klog"
TABLES = {
    "config/table_cluster.py",
    "config/table_log.py",
    "config/table_network.py",
    "config/table_security.py",
    "config/table_unused.py",
    "config/table_zookeeper.py",
}

NAMED_AND_WITHOUT_EFFECT = {
    ("unclean.leader.election.enable", "config/broker.py"): "warns that it has none for a broker",
    ("unclean.leader.election.enable", "config/topic.py"): "a topic's own has one, a broker's has none",
    ("compression.type", "tools/copying/topics.py"): "copied to a mirror's topic",
    ("compression.type", "cli/mirror.py"): "a producer's",
    ("log.message.timestamp.type", "tools/copying/topics.py"): "copied to a mirror's topic",
    ("compression.type", "tools/librdkafka.py"): "a producer's",
    ("compression.type", "cli/produce.py"): "a producer's",
    ("unclean.leader.election.enable", "admin/setting_changes.py"): "a topic's own: what follows from it",
    ("request.timeout.ms", "tools/sender.py"): "a producer's",
    ("zookeeper.clientCnxnSocket", "client/zookeeper_access.py"): "taken, for files of Kafka's that have it",
}
"""(setting, where it is named): what is done with it there, which is no effect of a broker's setting."""

ZOOKEEPER_ACCESS = "client/zookeeper_access.py"
"""Brokers and commands connect to ZooKeeper by the same settings."""

OTHER_VALUES = {"bool": ("true", "false"), "list": ("x",), "enum": (), "string": ("x",), "float": ("0.5", "0.25")}
NUMBERS = ("2", "3", "100", "4096", "100000")


@cache
def texts() -> dict[str, set[str]]:
    """Text -> the files in which it stands; TOPIC_SETTINGS is left out, which is a table too."""
    found: dict[str, set[str]] = {}
    for path in KLOG.rglob("*.py"):
        where = str(path.relative_to(KLOG))
        own = where.startswith(("client/", "spark/")) and where != ZOOKEEPER_ACCESS  # clients' settings are others
        if where in TABLES or own:
            continue
        text = path.read_text("utf-8")
        if {*BROKER_SETTINGS, *TOPIC_SETTINGS}.isdisjoint(re.findall(r'"([^"\n]*)"', text)):
            continue
        tree = ast.parse(text)
        for node in ast.iter_child_nodes(tree):
            match node:
                case ast.AnnAssign(target=ast.Name(id="TOPIC_SETTINGS")):
                    node.value = None
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, set()).add(where)
    return found


def named_in(name: str) -> set[str]:
    """Files that name a broker's setting, or the topic's setting that it is the default of."""
    names = {name, *(topic for topic, broker in TOPIC_SETTINGS.items() if broker == name)}
    return set().union(*(texts().get(one, set()) for one in names))


def followed_by(name: str) -> set[str]:
    """Settings that this one decides while they are not given, also by way of others."""
    direct = {one.name for one in BROKER_SETTINGS.values() if any(leader == name for leader, _ in one.follows)}
    return direct.union(*(followed_by(one) for one in direct))


def other_values(name: str) -> list[str]:
    """Texts that the setting takes and that are not its default."""
    setting = BROKER_SETTINGS[name]
    found = []
    for text in OTHER_VALUES.get(setting.kind, NUMBERS):
        try:
            value = setting.parse(text)
        except Exception:  # not of this setting
            continue
        if value != setting.default:
            found.append(text)
    return found


WITHOUT = sorted(name for name, one in BROKER_SETTINGS.items() if one.effect == "none")
WITH = sorted(name for name, one in BROKER_SETTINGS.items() if one.effect != "none")


@each("name", WITHOUT)
def test_what_is_said_to_have_no_effect_is_read_nowhere(name: str) -> None:
    read = {where for where in named_in(name) if (name, where) not in NAMED_AND_WITHOUT_EFFECT}
    assert not read, f"{name} is said to have no effect, and is named in {sorted(read)}"
    assert not (followed_by(name) & set(WITH)), f"{name} has no effect, and {followed_by(name)} follow it"


@each("name", WITH)
def test_what_is_said_to_have_an_effect_is_read(name: str) -> None:
    read = set().union(*(named_in(one) for one in (name, *followed_by(name))))
    assert read, f"{name} is said to have an effect ({BROKER_SETTINGS[name].effect}), and nobody reads it"


@each("name", WITHOUT)
def test_what_has_no_effect_changes_no_log(name: str) -> None:
    for text in other_values(name):
        assert LogConfig.of(BrokerConfig.parse({name: text}), {}) == LogConfig()


def test_a_brokers_unclean_elections_are_no_topics() -> None:
    """A topic has them where it says so itself; what is shown of it says the same."""
    config = BrokerConfig.parse({"unclean.leader.election.enable": "true"}, "the file")
    assert not LogConfig.of(config, {}).unclean_leader_election
    assert LogConfig.of(config, {"unclean.leader.election.enable": "true"}).unclean_leader_election
    for own in ({}, {"unclean.leader.election.enable": "true"}, {"unclean.leader.election.enable": "false"}):
        assert may_be_led_uncleanly(own) == LogConfig.of(config, own).unclean_leader_election
    shown = {one.name: (one.value, one.source) for one in topic_values(config, {})}
    assert {shown[name] for name in OF_TOPICS_ALONE} == {(False, "default")}
    assert any("unclean.leader.election.enable" in warning for warning in config.warnings)


def test_what_is_excused_is_still_there() -> None:
    for name, where in NAMED_AND_WITHOUT_EFFECT:
        assert name in WITHOUT and where in named_in(name)
