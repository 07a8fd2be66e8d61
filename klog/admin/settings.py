"""Settings of topics and brokers, read and changed over the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.config.broker import BROKER_SETTINGS, default_text
from klog.config.topic import unknown_setting_hint
from klog.errors import InvalidConfig
from klog.protocol.apis import ApiKey

TOPIC = 2
BROKER = 4
"""Kinds of resources, as the protocol numbers them."""

SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "start", 5: "default"}
"""The protocol's numbers in words: set on the topic; on the broker or on all while they run; given to the broker
when it started (file or flags); no client set it."""

_SET, _DELETE = 0, 1
_IN_MS = {".hours": 3_600_000, ".minutes": 60_000}


class Described(NamedTuple):
    """One setting as a broker reports it; ``default`` is None where it does not say. ``below``: the value that holds
    without the topic's own."""

    name: str
    value: str | None
    source: str
    default: str | None
    doc: str | None
    below: str | None

    def in_klog(self, broker_name: str | None) -> tuple[str | None, str | None, str | None]:
        """Default, effect and explanation: of klog's setting of this name of brokers, else what the broker says."""
        setting = BROKER_SETTINGS.get(broker_name or "")
        if setting is None:
            return self.default, None, self.doc
        return default_text(setting.name), setting.effect, setting.doc


async def describe_settings(
    cluster: Cluster, topics: Sequence[str], *, names: Sequence[str] | None = None
) -> dict[str, list[Described]]:
    """The settings of topics, by topic and then by name; all of them, or those named."""
    if not topics:
        return {}
    answer = await cluster.to_any(ApiKey.DESCRIBE_CONFIGS, 4, 1, **_asked(TOPIC, topics, names))
    return {str(one.resource_name): _described(one, f"topic {one.resource_name!r}") for one in answer.results}


async def describe_broker_settings(
    cluster: Cluster, broker_id: int, *, names: Sequence[str] | None = None
) -> list[Described]:
    """The settings of a broker, by name, all or those named; only that broker knows them."""
    asked = _asked(BROKER, [str(broker_id)], names)
    answer = await cluster.to_broker(broker_id, ApiKey.DESCRIBE_CONFIGS, 4, 1, **asked)
    return _described(answer.results[0], f"broker {broker_id}")


def _asked(kind: int, resources: Sequence[str], names: Sequence[str] | None) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": one, "configuration_keys": names} for one in resources],
        "include_synonyms": True,
        "include_documentation": names is None,
    }


async def topic_values(
    cluster: Cluster, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Topic -> the values that hold for it of the settings of these names."""
    found = await describe_settings(cluster, topics, names=names)
    return {topic: {one.name: one.value for one in settings} for topic, settings in found.items()}


async def setting_of(cluster: Cluster, topic: str, name: str) -> str | None:
    """The value that holds for a topic of one setting."""
    return (await topic_values(cluster, [topic], [name]))[topic].get(name)


async def min_isr(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """``min.insync.replicas`` as it is set for each topic; `effective_min_isr` says what a partition makes of it."""
    name = "min.insync.replicas"
    return {
        topic: int(values.get(name) or 1) for topic, values in (await topic_values(cluster, topics, [name])).items()
    }


async def own_settings(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """What is set on each topic itself, by name; the cluster's and default settings are left out."""
    return {
        topic: {one.name: one.value for one in settings if one.source == "topic" and one.value is not None}
        for topic, settings in (await describe_settings(cluster, topics)).items()
    }


async def alter_topic_settings(
    cluster: Cluster, topic: str, given: Mapping[str, str], deleted: Sequence[str], *, validate_only: bool = False
) -> None:
    """Set some settings of a topic and delete others, in one step; ``validate_only``: check that this can be done."""
    changes = [{"name": name, "config_operation": _SET, "value": value} for name, value in given.items()]
    changes += [{"name": name, "config_operation": _DELETE, "value": None} for name in deleted]
    answer = await cluster.to_controller(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[{"resource_type": TOPIC, "resource_name": topic, "configs": changes}],
        validate_only=validate_only,
    )
    for one in answer.responses:
        try:
            check(one, f"topic {topic!r}")
        except InvalidConfig as error:
            error.hint = unknown_setting_hint([*given, *deleted])
            raise


def _described(result: Any, what: str) -> list[Described]:
    check(result, what)
    found = []
    for one in result.configs:
        name, source = str(one.name), SOURCES.get(int(one.config_source), "unknown")
        default = next((other.value for other in one.synonyms if SOURCES.get(int(other.source)) == "default"), None)
        if default is None and source == "default":
            default = one.value
        below = next((_below(name, other) for other in one.synonyms if SOURCES.get(int(other.source)) != "topic"), None)
        found.append(Described(name, one.value, source, default, getattr(one, "documentation", None), below))
    return sorted(found)


def _below(name: str, synonym: Any) -> str | None:
    """The synonym's value in the unit of the setting: ``log.retention.hours`` of ``retention.ms`` in milliseconds."""
    factor = next((factor for end, factor in _IN_MS.items() if str(synonym.name).endswith(end)), None)
    value: str | None = synonym.value
    if factor is None or not name.endswith(".ms") or not value:
        return value
    number = int(value)
    return str(number * factor if number > 0 else number)  # -1 stays "no limit"
