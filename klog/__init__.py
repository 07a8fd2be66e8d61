"""klog: a distributed log that speaks the Kafka protocol.

The library's names are loaded when they are first used: ``import klog`` alone loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klog import errors as errors
    from klog.client.consumer import Consumer as Consumer
    from klog.client.log_handler import LogHandler as LogHandler
    from klog.client.message import Message as Message
    from klog.client.message import MessageSet as MessageSet
    from klog.client.producer import Producer as Producer
    from klog.client.sending import Place as Place
    from klog.client.sending import Sending as Sending
    from klog.client.streams import MessageStream as MessageStream
    from klog.errors import ConsumerTimeout as ConsumerTimeout
    from klog.errors import GroupIsHeld as GroupIsHeld
    from klog.errors import InvalidConfig as InvalidConfig
    from klog.errors import KlogError as KlogError
    from klog.errors import NotOwned as NotOwned
    from klog.errors import OffsetOutOfRange as OffsetOutOfRange
    from klog.errors import RebalanceFailed as RebalanceFailed
    from klog.spark.reading import read as read
    from klog.tools.schemas import Schemas as Schemas

__version__ = "0.3.0.dev0"

_LIBRARY = {
    "Consumer": "klog.client.consumer",
    "ConsumerTimeout": "klog.errors",
    "GroupIsHeld": "klog.errors",
    "InvalidConfig": "klog.errors",
    "KlogError": "klog.errors",
    "LogHandler": "klog.client.log_handler",
    "Message": "klog.client.message",
    "MessageSet": "klog.client.message",
    "MessageStream": "klog.client.streams",
    "NotOwned": "klog.errors",
    "OffsetOutOfRange": "klog.errors",
    "Place": "klog.client.sending",
    "Producer": "klog.client.producer",
    "RebalanceFailed": "klog.errors",
    "Schemas": "klog.tools.schemas",
    "Sending": "klog.client.sending",
    "read": "klog.spark.reading",
}
"""Name -> the module that has it."""


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("klog.errors")
    if name in _LIBRARY:
        return getattr(import_module(_LIBRARY[name]), name)
    raise AttributeError(f"module 'klog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LIBRARY, "errors"])
