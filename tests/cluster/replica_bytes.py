"""The bytes of a partition's replicas, as they are in the brokers' files: equal at every address that all of them have.

Where segments begin may differ from one replica to another; what stands at an address may not.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster_fixture import RunningCluster


def segments(folder: Path) -> dict[int, bytes]:
    """first address -> the bytes of each segment of a partition's folder."""
    return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.log"))}


def folder_of(cluster: RunningCluster, broker_id: int, topic: str, partition: int = 0) -> Path:
    return cluster.brokers[broker_id].folder / "data" / f"{topic}-{partition}"


def flip(path: Path, at: int) -> None:
    """A bit of the byte there. In place: the broker may be reading the file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def extent(found: dict[int, bytes]) -> tuple[int, int]:
    """The first address, and the one behind the last byte."""
    return min(found), max(first + len(data) for first, data in found.items())


def differing(one: dict[int, bytes], other: dict[int, bytes]) -> int | None:
    """The first address at which they differ, of those that both have; None: there is none."""
    start = max(extent(one)[0], extent(other)[0])
    end = min(extent(one)[1], extent(other)[1])
    left, right = _between(one, start, end), _between(other, start, end)
    if left == right:
        return None
    return start + next(i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)


def _between(found: dict[int, bytes], start: int, end: int) -> bytes:
    """With zeros where no segment has a byte."""
    whole = bytearray(max(0, end - start))
    for first, data in found.items():
        low, high = max(first, start), min(first + len(data), end)
        if low < high:
            whole[low - start : high - start] = data[low - first : high - first]
    return bytes(whole)


def assert_identical(cluster: RunningCluster, topic: str, partitions: int = 1) -> int:
    """Every replica of a topic that is at rest and in sync has the same bytes and the same end; bytes of a replica."""
    total = 0
    for partition, known in cluster.partitions(topic).items():
        assert set(known.isr_nodes) == set(known.replica_nodes), f"{topic}-{partition} is not in sync: {known}"
        found = {one: segments(folder_of(cluster, one, topic, partition)) for one in known.replica_nodes}
        ends = {one: extent(parts)[1] for one, parts in found.items()}
        assert len(set(ends.values())) == 1, f"{topic}-{partition}: replicas end at {ends}"
        first, *others = found
        for other in others:
            address = differing(found[first], found[other])
            assert address is None, f"{topic}-{partition}: brokers {first} and {other} differ at address {address}"
        total += sum(len(data) for data in found[first].values())
    assert len(cluster.partitions(topic)) == partitions
    return total
