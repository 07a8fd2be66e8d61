"""The cluster's secret (rule R10): where it is kept, where it is not shown, and who is refused without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from klog.admin import registries
from klog.coordination import cluster, paths
from klog.protocol import replica_fetch
from klog.protocol.apis import ApiKey
from klog.secret import Secret
from klog.server import handlers
from klog.server.dispatch import ROUTES
from tests.broker_fixture import RunningBroker
from tests.server.asking import answered, ask
from tests.server.test_access import body
from tests.server.test_start import start_refused
from tests.server.wire import RawConnection
from tests.zookeeper_fixture import session_of

assert handlers  # imported for the table of what is served

MakeBroker = Callable[..., RunningBroker]


def secret_lines(broker: RunningBroker) -> list[str]:
    text = (broker.folder / "data" / "meta.properties").read_text()
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith("cluster.secret=")]


def in_zookeeper(broker: RunningBroker) -> Secret | None:
    with session_of(broker.zookeeper) as session:
        return cluster.secret(session)


def test_brokers_that_start_together_have_one_secret_and_show_it_nowhere(make_broker: MakeBroker) -> None:
    both = [make_broker(1), make_broker(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(RunningBroker.start, both))
    secret = in_zookeeper(both[0])
    assert secret is not None
    for broker in both:
        meta = broker.folder / "data" / "meta.properties"
        assert secret_lines(broker) == [secret.text]
        assert meta.stat().st_mode & 0o777 == 0o600
        assert secret.text not in broker.log_text
        resource = {"resource_type": 4, "resource_name": str(broker.broker_id), "configuration_keys": None}
        settings = ask(broker.bootstrap, ApiKey.DESCRIBE_CONFIGS, 2, resources=[resource], include_synonyms=True)
        assert secret.text not in str(settings)

    with session_of(both[0].zookeeper) as session:
        assert secret.text.encode() not in registries.get_node(session, paths.SECRET).data


def test_zookeepers_copy_that_is_lost_is_put_back_and_one_that_differs_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    secret = in_zookeeper(broker)
    assert secret is not None and broker.stop() == 0
    with session_of(broker.zookeeper) as session:
        session.delete(paths.SECRET)
    assert broker.start().stop() == 0
    assert in_zookeeper(broker) == secret
    other = Secret.random()
    with session_of(broker.zookeeper) as session:
        session.set(paths.SECRET, json.dumps({"version": 1, "secret": other.text}).encode())
    start_refused(broker, "cluster.secret", "/klog/secret", "remove the line")
    assert not any(one.text in broker.log_text for one in (secret, other))
    meta = broker.folder / "data" / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if not line.startswith("cluster.secr")))
    broker.start()
    assert secret_lines(broker) == [other.text]


def test_every_request_among_brokers_is_refused_to_strangers_on_every_listener(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    among_brokers = [ApiKey(key) for key, route in ROUTES.items() if route.of_brokers]
    assert ApiKey.UPDATE_METADATA in among_brokers
    broker = make_broker(inter__broker__listener__name="REPLICATION")
    broker.listen = "127.0.0.1:0,REPLICATION://127.0.0.1:0"
    broker.start()
    with session_of(broker.zookeeper) as session:
        entry = json.loads(session.get(paths.broker(1)).data)
        cluster_id = cluster.cluster_id(session)
    assert cluster_id is not None
    assert entry["inter_broker"] != broker.bootstrap
    for address in (broker.bootstrap, entry["inter_broker"]):
        for api in among_brokers:
            answer = answered(address, body(api, 0))
            assert int(answer.error_code) == 31, (address, api)
        with RawConnection(address) as stranger:
            stranger.send(replica_fetch.open_request(cluster_id, 2, 1, 1))
            opened = replica_fetch.read_opened(memoryview(stranger.answer()))
            assert (opened.error_code, opened.incarnation) == (31, -1), address
    broker.wait_for_log("WARNING", "secret")
