"""klog's own requests become dataclasses when the first one asks for their fields, in whatever way."""

import subprocess
import sys

from tests.rows import each

FIRST_USES = [
    "LeaderAndIsrTopic(name='t', topic_id=None, fence_version=1, partitions=()).partitions == ()",
    "[one.name for one in fields(LeaderAndIsrTopic)] == ['name', 'topic_id', 'fence_version', 'partitions']",
    "is_dataclass(LeaderAndIsrTopic) and not is_dataclass(Structure)",
    "codec.build(LeaderAndIsrTopic, {'name': 't', 'topic_id': None, 'fence_version': 1, 'partitions': ()}).name == 't'",
    "[bool(fields(request_schema(key, 0))) for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA)] == [True, True]",
    "len({*ThreadPoolExecutor(8).map(lambda _: tuple(one.name for one in fields(LeaderAndIsrTopic)), range(64))}) == 1",
]


@each("use", FIRST_USES)
def test_a_first_use(use: str) -> None:
    program = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom dataclasses import fields, is_dataclass\n"
        "from klog.protocol import codec\nfrom klog.protocol.apis import ApiKey\n"
        "from klog.protocol.interbroker import LeaderAndIsrTopic\nfrom klog.protocol.schema import Structure\n"
        f"from klog.protocol.versions import request_schema\nassert {use}"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
