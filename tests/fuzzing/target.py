"""What is attacked: a broker with permissions, a plain listener and one with SASL, topics of which one must not change.

`Target.check` looks for whatever an attack must leave as it was; `Watch` asks the broker all the while, as a client of
good manners does.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from typing import Any, Final

import psutil

from klog.admin import acts
from klog.client.blocking import BlockingChannel
from klog.coordination import acls, scram_credentials
from klog.coordination.acts import Actor
from klog.coordination.zookeeper import ZooKeeper
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from klog.security.client_security import ClientSecurity
from klog.security.permissions import CLUSTER_NAME, Acl, Operation, Pattern, PatternType, Permission, ResourceType
from klog.security.scram import ScramCredential, ScramMechanism
from tests.broker_fixture import RunningBroker
from tests.fuzzing.frames import OWN, SENTINEL
from tests.security.broker_doors import ports_of
from tests.server.asking import commit, new_topic, produce_request, values
from tests.server.garbage import counting, tasks_in
from tests.server.wire import check_log, fetch_request, open_descriptors
from tests.until import until

USER: Final = "mallory"
ROOT: Final = "root"
"""An attacker who may do everything."""
ADMIN: Final = "admin"
"""Who looks after the target."""
PASSWORDS: Final = {name: f"the password of {name}" for name in (USER, ROOT, ADMIN)}
MESSAGES: Final = 500
PARTITIONS: Final = 2
EVERY_S: Final = 0.02

_EVERYBODY: Final = (
    (
        Pattern(ResourceType.TOPIC, OWN, PatternType.PREFIXED),
        (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS),
    ),
    (Pattern(ResourceType.GROUP, OWN, PatternType.PREFIXED), (Operation.READ, Operation.DELETE)),
    (
        Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
        (Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE),
    ),
)
"""What the attacker may, with and without a name."""


class Target:
    """``broker``: not started."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        broker.listen = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://localhost:0"
        broker.settings = {
            "authorizer.class.name": "klog",
            "super.users": f"User:{ADMIN};User:{ROOT}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "connection.failed.authentication.delay.ms": "5",
            "log.segment.bytes": "1048576",
            "log.retention.bytes": "8388608",
            "log.retention.check.interval.ms": "2000",
        }
        self.ports: dict[str, int] = {}
        self._before: Any = None
        self._log_seen = 0

    def start(self) -> None:
        broker = self.broker
        with ZooKeeper(broker.zookeeper) as session:
            session.start(create_chroot=True)
            for name, password in PASSWORDS.items():
                made = {one: ScramCredential.of_password(one, password, b"salted") for one in ScramMechanism}
                scram_credentials.write(session, name, made, acts.here(session))
            acls.ensure_folders(session)
            for pattern, operations in _EVERYBODY:
                granted = {Acl("User:*", "*", one, Permission.ALLOW) for one in operations}
                acls.change(session, pattern, lambda _, g=granted: g, Actor("fuzz", "here"))  # type: ignore[misc]
        counting(broker)
        self.ports = ports_of(broker)
        with self.channel() as channel:
            for name in (f"{OWN}a", f"{OWN}b", SENTINEL):
                answer = channel.request(codec.request(ApiKey.CREATE_TOPICS, 5, topics=[new_topic(name, PARTITIONS)]))
                assert answer.topics[0].error_code.value == 0, answer
            for name in (f"{OWN}a", SENTINEL):
                until(lambda n=name: _produced(channel, n) == 0, timeout_s=30.0)  # type: ignore[misc]
            until(lambda: commit(channel, SENTINEL, SENTINEL, PARTITIONS) == 0, timeout_s=30.0)
        self._before = self._facts()
        self.threads = psutil.Process(broker.pid).num_threads()
        self.descriptors = open_descriptors(broker.pid)
        self.tasks = tasks_in(broker)

    def channel(self) -> closing[BlockingChannel]:
        security = ClientSecurity("SASL_PLAINTEXT", "SCRAM-SHA-256", ADMIN, PASSWORDS[ADMIN])
        return closing(BlockingChannel.connect("localhost", self.ports["SASL_PLAINTEXT"], security=security))

    def is_alive(self) -> bool:
        process = self.broker.process
        return process is not None and process.poll() is None

    def look_into_log(self, sent: list[tuple[str, int, int, str]]) -> bool:
        """Whether the broker has blamed itself since the last look: then the frames before that are kept in a file."""
        text, self._log_seen = self.broker.log_text[self._log_seen :], len(self.broker.log_text)
        try:
            check_log(text)
        except AssertionError as found:
            path = self.broker.folder / f"finding-{self._log_seen}.json"
            path.write_text(json.dumps({"log": str(found), "frames": sent}, indent=1))
            return True
        return False

    def check(self) -> None:
        """AssertionError where something has changed that the attacker may not change, or the broker blames itself."""
        assert self.is_alive(), self.broker.log_text[-3000:]
        check_log(self.broker.log_text)
        facts = self._facts()
        for name, before in self._before.items():
            assert facts[name] == before, (name, before, facts[name])

    def _facts(self) -> dict[str, Any]:
        with self.channel() as channel:
            metadata = channel.request(codec.request(ApiKey.METADATA, 5, topics=None, allow_auto_topic_creation=False))
            messages = [
                bytes(
                    channel.request(fetch_request(SENTINEL, 0, partition=one)).responses[0].partitions[0].records or b""
                )
                for one in range(PARTITIONS)
            ]
            config = channel.request(
                codec.request(
                    ApiKey.DESCRIBE_CONFIGS,
                    4,
                    resources=[{"resource_type": 2, "resource_name": SENTINEL, "configuration_keys": None}],
                    include_synonyms=False,
                    include_documentation=False,
                )
            )
            committed = channel.request(codec.request(ApiKey.OFFSET_FETCH, 5, group_id=SENTINEL, topics=None))
            permitted = channel.request(
                codec.request(
                    ApiKey.DESCRIBE_ACLS,
                    2,
                    resource_type_filter=1,
                    resource_name_filter=None,
                    pattern_type_filter=1,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            )
            users = channel.request(codec.request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None))
        return {
            "topics": sorted((one.name, len(one.partitions)) for one in metadata.topics if one.name != "klog.events"),
            "messages": messages,
            "config": [(one.name, one.value) for one in config.results[0].configs],
            "committed": committed.topics,
            "acls": repr(sorted(map(repr, permitted.resources))),
            "users": sorted(one.user for one in users.results),
        }


def _produced(channel: BlockingChannel, topic: str) -> int:
    codes = set()
    for partition in range(PARTITIONS):
        request = produce_request(topic, bytes(encode_batch(values(MESSAGES))), partition)
        codes.add(channel.request(request).responses[0].partition_responses[0].error_code.value)
    return max(codes)


class Watch:
    """Asks the broker for the sentinel's messages, again and again, in a thread of its own."""

    def __init__(self, target: Target, *, is_sacred: bool = True) -> None:
        """``is_sacred``: the attacker may not delete them."""
        self._target = target
        self._is_sacred = is_sacred
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0
        self.slowest_s = 0.0
        self.resident_max = 0
        self.threads_max = 0
        self.descriptors_max = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(60)

    def check(self, *, within_s: float, resident_bytes_max: int) -> None:
        assert self.failure is None, self.failure
        assert self.rounds > 3
        assert self.slowest_s < within_s, f"an answer took {self.slowest_s:.1f} s"
        assert self.resident_max < resident_bytes_max, f"{self.resident_max / 1e6:.0f} MB"

    def _run(self) -> None:
        try:
            process = psutil.Process(self._target.broker.pid)
            with self._target.channel() as channel:
                while not self._ending.wait(EVERY_S):
                    began_s = time.monotonic()
                    answer = channel.request(fetch_request(SENTINEL, 0))
                    code = answer.responses[0].partitions[0].error_code.value
                    assert code == 0 or not self._is_sacred, answer
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
                    self.rounds += 1
                    self.resident_max = max(self.resident_max, process.memory_info().rss)
                    self.threads_max = max(self.threads_max, process.num_threads())
                    self.descriptors_max = max(self.descriptors_max, process.num_fds())
        except BaseException as problem:
            self.failure = problem
