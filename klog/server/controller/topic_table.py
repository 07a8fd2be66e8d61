"""The topics that the controller knows, indexed by the brokers with their replicas."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NoReturn

from klog.coordination.topics import Topic
from klog.names import TopicPartition


class TopicTable(dict[str, Topic]):
    """Name -> topic. Change it by assignment, ``del`` and ``pop`` only, which also update `hosted`.

    With 200,000 partitions a search through all takes 20 ms, and each of 1,000 brokers that comes, goes or answers
    needs one.
    """

    def __init__(self, topics: dict[str, Topic] | None = None) -> None:
        super().__init__()
        self._hosted: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
        """Broker id -> topic -> partitions of which the broker has a replica."""
        for name, topic in (topics or {}).items():
            self[name] = topic

    def hosted(self, broker_id: int) -> set[TopicPartition]:
        """The partitions of which the broker has a replica."""
        there = self._hosted.get(broker_id, {})
        return {TopicPartition(topic, number) for topic, numbers in there.items() for number in numbers}

    def __setitem__(self, name: str, topic: Topic) -> None:
        known = self.get(name)
        if known is None or known.partitions != topic.partitions:
            self._forget(name)
            for number, replicas in topic.partitions.items():
                for broker_id in replicas:
                    self._hosted[broker_id].setdefault(name, []).append(number)
        super().__setitem__(name, topic)

    def __delitem__(self, name: str) -> None:
        self._forget(name)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        """As a dict's."""
        self._forget(name)
        return super().pop(name, *default)

    def _forget(self, name: str) -> None:
        known = self.get(name)
        if known is None:
            return
        for broker_id in {one for replicas in known.partitions.values() for one in replicas}:
            del self._hosted[broker_id][name]
            if not self._hosted[broker_id]:
                del self._hosted[broker_id]

    def update(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("topics are assigned one by one")

    setdefault = popitem = clear = __ior__ = update
