"""klog's own requests become dataclasses when the first one asks for their fields, in whatever way."""

import subprocess
import sys

FIRST_USES = [
    "LeaderAndIsrTopic(name='t', topic_id=None, fence_version=1, partitions=()).partitions == ()",
    "[one.name for one in fields(LeaderAndIsrTopic)] == ['name', 'topic_id', 'fence_version', 'partitions']",
    "is_dataclass(LeaderAndIsrTopic) and not is_dataclass(Structure)",
    "codec.build(LeaderAndIsrTopic, {'name': 't', 'topic_id': None, 'fence_version': 1, 'partitions': ()}).name == 't'",
    "[bool(fields(request_schema(key, 0))) for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA)] == [True, True]",
    "len({*ThreadPoolExecutor(8).map(lambda _: tuple(one.name for one in fields(LeaderAndIsrTopic)), range(64))}) == 1",
]


PROGRAM = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.interbroker import LeaderAndIsrTopic
from klog.protocol.schema import Structure
from klog.protocol.versions import request_schema
for use in sys.argv[1:]:
    child = os.fork()
    if not child:
        assert eval(use), use
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


def test_a_first_use() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *FIRST_USES], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
