"""Acts: what was granted is remembered, by whatever client it came and whatever died; and a change is taken back."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from klog.coordination import acts, paths, topics
from klog.coordination.acts import Act, Actor
from klog.coordination.zookeeper import Delete
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.cli.runner import act_rows, klog
from tests.cluster.test_reassignment import alter, wait_done
from tests.cluster.test_story import story
from tests.cluster_fixture import RunningCluster
from tests.server.asking import create, with_channel
from tests.until import until
from tests.zookeeper_fixture import session_of

WITHIN_S = 20.0


def remembered(address: str, topic: str) -> list[Act]:
    with session_of(address) as session:
        return [act for act in acts.read(session, acts.list_ids(session)) if act.topic == topic]


def admin(bootstrap: str, client: str = "night shift") -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "client.id": client})


def set_retention(client: AdminClient, topic: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource], request_timeout=WITHIN_S)[resource].result(WITHIN_S)


def retention(broker: RunningBroker, topic: str) -> str | None:
    with session_of(broker.zookeeper) as session:
        return topics.configs(session, [topic])[topic].settings.get("retention.ms")


def test_every_act_on_a_topic_is_remembered(broker: RunningBroker, topic: str) -> None:
    at = ["-B", broker.bootstrap]
    client = admin(broker.bootstrap)
    made = NewTopic(topic, 1, 1, config={"retention.ms": "100000000"})
    client.create_topics([made])[topic].result(WITHIN_S)
    set_retention(client, topic, "7000000")
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN_S)
    assert klog("topic", "config", topic, "--delete", "retention.ms", *at).code == 0
    with pytest.raises(KafkaException):
        set_retention(client, topic, "not a number")
    with pytest.raises(KafkaException):
        client.create_topics([made])[topic].result(WITHIN_S)
    checked = NewTopic(f"{topic}-x", 1, 1)
    client.create_topics([checked], validate_only=True)[checked.topic].result(WITHIN_S)
    client.delete_topics([topic])[topic].result(WITHIN_S)

    rows = act_rows(broker.zookeeper, topic=topic)
    assert [row["kind"] for row in rows] == [
        *("topic-create", "topic-settings", "partitions-add", "topic-settings", "topic-delete")
    ]
    assert [row["client"] for row in rows] == [*(["night shift"] * 3), "klog", "night shift"]
    assert rows[0]["principal"] == "night shift@127.0.0.1"
    requests = [row["request"] for row in rows if row["client"] == "night shift"]
    assert requests == sorted(requests) and len(set(requests)) == len(requests)  # a client counts them
    assert (rows[1]["before"], rows[1]["after"]) == ("retention.ms=100000000", "retention.ms=7000000")
    assert (rows[3]["before"], rows[3]["after"]) == ("retention.ms=7000000", "-")


def test_a_change_of_settings_is_undone(broker: RunningBroker, topic: str) -> None:
    at = ["-B", broker.bootstrap]
    assert klog("topic", "create", topic, "-X", "retention.ms=5000000", *at).code == 0
    set_retention(admin(broker.bootstrap), topic, "1000000")
    act = act_rows(broker.zookeeper, topic=topic)[-1]["act"]

    ran = klog("undo", act, "--dry-run", "-o", "json", *at)
    assert ran.code == 0
    (row,) = ran.rows
    assert (row["setting"], row["now"], row["then"]) == ("retention.ms", "1000000", "5000000")
    assert klog("undo", act, *at).code == 2  # stdin is not a terminal
    assert retention(broker, topic) == "1000000"

    assert klog("undo", act, "--yes", *at).code == 0
    assert retention(broker, topic) == "5000000"
    rows = act_rows(broker.zookeeper, topic=topic)
    assert (rows[-1]["undoes"], rows[-2]["act"], rows[-2]["undone_by"]) == (act, act, rows[-1]["act"])
    assert rows[-1]["principal"] == rows[0]["principal"] == "klog@127.0.0.1", "one person, one name"

    ran = klog("undo", act, "--yes", "-o", "json", *at)  # the state has moved on
    assert ran.code == 1 and "5000000" in ran.error["message"] and "1000000" in ran.error["message"]
    assert klog("undo", rows[-1]["act"], "--yes", *at).code == 0  # the undo is undone
    assert retention(broker, topic) == "1000000"


def test_a_change_of_nothing_is_not_an_act(broker: RunningBroker, topic: str) -> None:
    """Else any client could fill the registry with them."""
    create(broker.bootstrap, topic)
    client = admin(broker.bootstrap)
    for value in ("7000000", "7000000", "8000000", "8000000"):
        set_retention(client, topic, value)
    found = [act for act in remembered(broker.zookeeper, topic) if act.kind == "topic-settings"]
    assert [act.after["retention.ms"] for act in found] == ["7000000", "8000000"]
    with session_of(broker.zookeeper) as session:
        node: Any = session.exists(paths.topic_config(topic))
    assert node.version == len(found)


def test_acts_that_zookeeper_has_no_more_are_in_the_events(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    set_retention(admin(broker.bootstrap), topic, "7000000")
    first, second = remembered(broker.zookeeper, topic)
    at = ["-o", "json", "-B", broker.bootstrap]
    with session_of(broker.zookeeper) as session:
        until(
            lambda: (
                acts.published(session) >= max(zxid for zxid, _ in acts.read_by_transaction(session, [second.act_id]))
            ),
            "the acts are published",
        )
        session.multi([Delete(paths.act(first.act_id))])
    rows = klog("events", "topic", topic, "--kind", "act", *at).rows
    assert [row["act"] for row in rows] == [first.act_id, second.act_id]
    assert [row["act"] for row in klog("events", "topic", topic, "--by", "night", *at).rows] == [second.act_id]
    assert klog("events", "act", first.act_id, *at).error["code"] == "NOT_FOUND"
    (shown,) = klog("acts", "show", second.act_id, *at).rows  # the words of the version before, as above
    assert (shown["act"], shown["kind"], shown["after"]) == (second.act_id, "topic-settings", "retention.ms=7000000")
    refused = klog("undo", first.act_id, "-y", "-B", broker.bootstrap)
    assert refused.code == 1 and "klog events" in refused.stderr


def test_a_long_act_is_shown_whole(broker: RunningBroker, topic: str) -> None:
    before = {f"setting.{number:03}": "x" * 50 for number in range(100)}
    act = acts.new_act("topic-settings", Actor("long", "10.9.9.9"), topic=topic, before=before, after={})
    event = act.event()
    assert event["left_out_bytes"] > acts.EVENT_STATE_BYTES_MAX and "before" not in event
    with session_of(broker.zookeeper) as session:
        session.multi([act.write])
    (shown,) = klog("events", act.act_id, "-o", "json", "-B", broker.bootstrap).rows
    assert all(f"{name}=" in shown["before"] for name in before) and shown["after"] == "-"
    (listed,) = act_rows(broker.zookeeper, topic=topic)
    assert " 80 " in listed["before"] and listed["after"] == "-"


def test_a_user_s_new_password_is_an_act_without_it(broker: RunningBroker, topic: str) -> None:
    user = f"user-{topic}"
    at = ["-B", broker.bootstrap]
    for words in (["add", user, "--generate"], ["passwd", user, "--generate"], ["delete", user, "--yes"]):
        assert klog("user", *words, *at).code == 0
    rows = [row for row in act_rows(broker.zookeeper) if row["subject"] == f"user {user}"]
    labels = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [(row["before"] != "-", row["after"] != "-") for row in rows] == [(False, True), (True, True), (True, False)]
    assert all(label in rows[1][state] for label in labels for state in ("before", "after"))
    with session_of(broker.zookeeper) as session:
        (made, *_) = [act for act in acts.read(session, acts.list_ids(session)) if act.user == user]
    assert set(made.after) == set(labels) and not any("key" in text or "salt" in text for text in made.after.values())
    refused = klog("undo", made.act_id, "--yes", "-o", "json", *at)
    assert refused.code == 1 and "user passwd" in refused.error["message"]


def test_who_only_claims_to_undo_an_act_has_not_undone_it(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    set_retention(admin(broker.bootstrap), topic, "7000000")
    act = remembered(broker.zookeeper, topic)[-1]
    liar = admin(broker.bootstrap, acts.UNDO_CLIENT + act.act_id)
    set_retention(liar, topic, "1000")
    create(broker.bootstrap, f"{topic}-x")
    liar.delete_topics([f"{topic}-x"])[f"{topic}-x"].result(WITHIN_S)
    rows = act_rows(broker.zookeeper, topic=topic)
    assert [row["undone_by"] for row in rows if row["act"] == act.act_id] == [None]


def test_what_cannot_be_undone_says_why(broker: RunningBroker, topic: str) -> None:
    at = ["-B", broker.bootstrap]
    assert klog("topic", "create", topic, *at).code == 0
    created = act_rows(broker.zookeeper, topic=topic)[-1]["act"]
    ran = klog("undo", created, "--yes", "-o", "json", *at)
    assert ran.code == 1 and "topic delete" in ran.error["message"]
    receipt = klog("topic", "config", topic, "retention.ms=1000000", *at)
    changed = act_rows(broker.zookeeper, topic=topic)[-1]["act"]
    assert receipt.stderr.splitlines()[-1] == f"undo: klog undo {changed}"
    assert "undo:" not in klog("topic", "config", topic, *at).stderr, "looking is no act"
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    ran = klog("undo", changed, "--yes", "-o", "json", *at)
    assert ran.code == 1 and topic in ran.error["message"]
    for missing in ("x", "0" * 12, "../../x"):
        ran = klog("undo", missing, "--yes", "-o", "json", *at)
        assert ran.code == 1 and missing in ran.error["message"]


def test_a_forwarded_act_is_its_clients(three: RunningCluster, topic: str) -> None:
    three.create(topic, factor=2)
    other = next(one for one in (1, 2, 3) if one != three.controller())
    entry = {"name": "retention.ms", "config_operation": 0, "value": "3000000"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [entry]}
    answer = three.ask(other, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code.value == 0
    found = [act for act in remembered(three.zookeeper, topic) if act.kind == "topic-settings"][-1]
    assert not found.actor.client.startswith("klog-broker") and found.actor.host == "127.0.0.1"

    client = "\u00fc" * 16_383  # with the broker's own in front it would not fit into a request
    entry = {**entry, "value": "4000000"}
    asked = codec.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**resource, "configs": [entry]}], validate_only=False
    )
    bootstrap = three.brokers[other].bootstrap
    answer = with_channel(bootstrap, lambda channel: channel.request(asked, client_id=client))
    assert answer.responses[0].error_code.value == 0
    actor = remembered(three.zookeeper, topic)[-1].actor
    assert actor._replace(request=None) == Actor(client[: acts.CLIENT_CHARS_MAX], "127.0.0.1")
    assert found.actor.request is not None and actor.request is not None


def test_a_topic_that_a_broker_makes_is_the_act_of_who_named_it(three: RunningCluster, topic: str) -> None:
    for broker_id, broker in three.brokers.items():
        made = f"{topic}-by-{broker_id}"
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop"})
        producer.produce(made, b"x")
        assert producer.flush(WITHIN_S) == 0
        (act,) = remembered(three.zookeeper, made)
        assert (act.kind, act.actor.host) == ("topic-create", "127.0.0.1") and act.actor.request is not None
        assert act.actor.client.startswith(acts.AUTO_CREATE) and act.actor.client.endswith(" shop")
        assert len(three.partitions(made)[0].replica_nodes) == 3, "the brokers' default factor"


def test_no_act_is_missing_after_brokers_were_killed(three: RunningCluster, topic: str) -> None:
    """A topic's settings node has as many versions as there are acts: each change wrote both or neither. Each act is
    also an event, even where its controller died at once; so is one that a command has written."""
    three.create(topic, factor=2)
    granted: list[str] = []
    stop = threading.Event()

    def change() -> None:
        client = admin(three.bootstrap, "day shift")
        number = 1_000_000
        while not stop.is_set():
            number += 1
            with contextlib.suppress(KafkaException):
                set_retention(client, topic, str(number))
                granted.append(str(number))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        three.wait_until(lambda: len(granted) > 5, "changes are granted")
        victim = three.controller()
        three.kill(victim)
        three.start(victim)
    finally:
        stop.set()
        changing.join()
    found = [act for act in remembered(three.zookeeper, topic) if act.kind == "topic-settings"]
    assert set(granted) <= {act.after["retention.ms"] for act in found}
    with session_of(three.zookeeper) as session:
        node: Any = session.exists(paths.topic_config(topic))
        by_hand = acts.new_act("offsets", Actor("by hand", "here"), group="g")
        session.multi([by_hand.write])
    assert node.version == len(found)
    wanted = {act.act_id for act in [*found, by_hand]}
    three.wait_until(
        lambda: wanted <= {event["act"] for event in story(three) if event["kind"] == "act"}, "all acts are events"
    )


def test_an_election_is_an_act_and_is_taken_back(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[2, 1]] * 3)
    at = ["-B", three.bootstrap]
    assert set(alter(three, {TopicPartition(topic, number): (1, 2) for number in (0, 2)}).values()) == {0}
    for number in (0, 2):  # 1 is preferred now, and 2 goes on to lead
        wait_done(three, topic, (1, 2), number)
    assert klog("topic", "elect", f"{topic}-0", f"{topic}-1", *at).code in (0, 1)  # the second needs none
    (act,) = [one for one in remembered(three.zookeeper, topic) if one.kind == "election"]
    assert (act.before, act.after) == ({"0": 2}, {"0": 1})

    assert klog("undo", act.act_id, "--yes", *at).code == 0
    assert three.leader_of(topic) == 2
    ran = klog("undo", act.act_id, "--yes", "-o", "json", *at)
    assert ran.code == 1 and f"the leader of {topic}-0 is 2" in ran.error["message"]
    wrong = [{"topic": topic, "partition_index": number, "broker_id": one} for number, one in ((0, 2), (1, 7), (9, 1))]
    answer = three.ask(three.controller(), ApiKey.ELECT_REPLICAS, 0, replicas=wrong)
    assert [one.error_code.name for one in answer.outcomes] == [
        *("election_not_needed", "preferred_leader_not_available", "unknown_topic_or_partition")
    ]


def test_a_reassignment_is_an_act_and_is_taken_back(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1], [2]])
    at = ["-B", three.bootstrap]
    wanted = [{"partition_index": number, "replicas": [2]} for number in (0, 1)]
    answer = three.ask(
        1, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": topic, "partitions": wanted}], timeout=9_000
    )
    assert [one.error_code.value for one in answer.responses[0].partitions] == [0, 0]
    (act,) = [one for one in remembered(three.zookeeper, topic) if one.kind == "reassignment"]
    assert (act.before, act.after) == ({"0": [1]}, {"0": [2]})

    assert klog("undo", act.act_id, "--yes", *at).code == 0
    first, second = act_rows(three.zookeeper, topic=topic)[-2:]
    assert (first["undone_by"], second["undoes"], second["after"]) == (second["act"], act.act_id, "0=[1]")
    ran = klog("undo", act.act_id, "--yes", "-o", "json", *at)
    assert ran.code == 1 and "[1]" in ran.error["message"] and "[2]" in ran.error["message"]
