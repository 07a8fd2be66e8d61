"""Small frames that unpack to gigabytes, of each codec, where klog unpacks: bounded memory, and an error that says so.

Rule P2. Memory is the process's own, as the kernel counts it: what a library allocates by itself is in it.
"""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from klog.record.batch import BatchHeader, stamp, write_header
from klog.record.codec import DECOMPRESSED_BYTES_MAX, Codec
from tests.broker_fixture import ROOT, RunningBroker
from tests.server.asking import (
    FIRST_MS,
    answered,
    create,
    error,
    offsets,
    offsets_request,
    produce,
    produce_raw,
    values,
)
from tests.server.wire import bystander

MakeBroker = Callable[..., RunningBroker]
MEGABYTE = 1_000_000
TOO_LARGE = 10
TINY = bytes([12, 0, 0, 0, 1, 1, 0])
"""A record without anything in it."""
PIECE_RECORDS = 1_000_000
PIECES_MAX = 300
PACKED_MAX = 1_000_000
"""What the default of max.message.bytes lets through."""
CODECS = [one for one in Codec if one]


def piece(codec: Codec) -> bytes:
    """7 MB of records, packed; pieces may follow one another."""
    data = TINY * PIECE_RECORDS
    match codec:
        case Codec.GZIP:
            return gzip.compress(data, 9)
        case Codec.SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(data))
            return struct.pack(">i", len(block)) + block
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(data))
        case _:
            return bytes(cramjam.zstd.compress(data))


def bomb(codec: Codec, packed_max: int) -> tuple[bytes, int]:
    """A batch of as many pieces as go into so many bytes, but for `PIECES_MAX`; and what it unpacks to."""
    one = piece(codec)
    pieces = min(PIECES_MAX, packed_max // len(one))
    body = one * pieces
    if codec is Codec.SNAPPY:
        body = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + body
    count = min(PIECE_RECORDS * pieces, len(body))  # a batch of more records than bytes has more addresses than bytes
    batch = bytearray(61) + body
    header = BatchHeader(0, len(batch) - 12, -1, 2, 0, codec, count - 1, FIRST_MS, FIRST_MS, -1, -1, -1, count)
    write_header(batch, 0, header)
    return bytes(batch), len(TINY) * PIECE_RECORDS * pieces


def peak_bytes(pid: int) -> int:
    """The most that a process has had resident since `forget_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def forget_peak(pid: int) -> int:
    """What it has resident now, from which on the peak counts."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes(pid)


def test_a_broker_unpacks_none_of_them(make_broker: MakeBroker, topic: str) -> None:
    """Two of each codec at once. A topic takes 16 MB of a batch unpacked, and two are unpacked at a time."""
    broker = make_broker().start()
    create(broker.bootstrap, topic)
    bombs = {codec: bomb(codec, PACKED_MAX) for codec in CODECS}
    assert min(unpacked_bytes for _, unpacked_bytes in bombs.values()) > 20 * MEGABYTE
    assert max(unpacked_bytes for _, unpacked_bytes in bombs.values()) > 2_000 * MEGABYTE
    found: list[tuple[Codec, int]] = []
    with bystander(broker) as other:
        other.go_on()
        before = forget_peak(broker.pid)

        def send(codec: Codec) -> None:
            found.append((codec, error(produce_raw(broker.bootstrap, topic, bombs[codec][0]))))

        threads = [threading.Thread(target=send, args=(codec,)) for codec in CODECS * 2]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        grown = peak_bytes(broker.pid) - before
    assert sorted(found) == sorted((codec, TOO_LARGE) for codec in CODECS * 2)
    assert grown < 100 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB"
    assert offsets(broker.bootstrap, topic) == (0, 0)


@pytest.mark.long("what gigabytes of nothing cost who looks into files")
@pytest.mark.slow
def test_bombs_in_a_log_cost_neither_its_broker_nor_who_looks_into_its_files(
    make_broker: MakeBroker, topic: str
) -> None:
    """As they may be in files of a broker that did not look into batches: by time, and by `klog log dump`."""
    broker = make_broker().start()
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(3)])
    broker.stop()
    path = next((broker.folder / "data" / f"{topic}-0").glob("*.log"))
    for codec in CODECS:
        batch = bytearray(bomb(codec, 20 * PACKED_MAX)[0])
        stamp(batch, 0, path.stat().st_size, 0)
        with path.open("ab") as file:
            file.write(batch)
    broker.start()
    before = forget_peak(broker.pid)
    asked = offsets_request(topic, FIRST_MS + 2, 0)
    assert error(answered(broker.bootstrap, asked).topics[0].partitions[0]) == 0
    assert peak_bytes(broker.pid) - before < 100 * MEGABYTE
    code, errors, most = peak_of(["log", "dump", str(path), "--messages"])
    assert code == 1
    assert errors.count(str(DECOMPRESSED_BYTES_MAX)) == len(CODECS), errors
    assert most < DECOMPRESSED_BYTES_MAX + 200 * MEGABYTE, f"{most / MEGABYTE:.0f} MB"


def peak_of(arguments: list[str]) -> tuple[int, str, int]:
    """Exit code, errors, and the most memory of a command in a process of its own.

    As the kernel has it of this program: what getrusage tells begins with the memory of the process that started it.
    """
    counted = "import sys; from klog.__main__ import main; code = main()\n"
    counted += "status = open('/proc/self/status').read()\n"
    counted += "print(status.partition('VmHWM:')[2].split()[0], file=sys.stderr); sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", counted, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    errors, _, kilobytes = done.stderr.rstrip().rpartition("\n")
    return done.returncode, errors, 1024 * int(kilobytes)
