"""`klog tail --schema`: values of stock serializers as JSON, and what is none of them as it is, with the reason."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
from pathlib import Path

import fastavro

from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.tools.verbs import make_topic, send

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
}


def framed(schema_id: int, value: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def test_values_are_decoded_by_the_id_in_each(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    at = ("-B", broker.bootstrap)
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    said = klog("schema", "register", f"{topic}-value", tmp_path / "order.avsc", *at)
    advice = re.search(r"`klog (schema level [^`]*)`", said.stderr)
    assert advice is not None and klog(*shlex.split(advice[1]), *at).code == 0, "what protects exports is a command"
    registered = klog("schema", "register", f"{topic}-value", tmp_path / "order.avsc", "-o", "json", *at)
    assert "`" not in klog("schema", "register", f"{topic}-value", tmp_path / "order.avsc", *at).stderr
    schema_id = registered.rows[0]["id"]
    make_topic(broker.bootstrap, topic)
    wanted: list[dict[str, object]] = [{"id": 1, "who": "ana"}, {"id": -(1 << 60), "who": None}]
    contents = [*(framed(schema_id, one) for one in wanted), b"plain", framed(999_999, wanted[0]), None]
    lines = [
        json.dumps({"value": None})
        if one is None
        else json.dumps({"value": base64.b64encode(one).decode(), "value_encoding": "base64"})
        for one in contents
    ]
    assert send(broker.bootstrap, topic, "\n".join(lines).encode(), input="jsonl").messages == 5
    read = ("tail", topic, "-o", "start", "-e", *at)
    shown = klog(*read, "-c", 3, "--schema")
    assert shown.code == 0, shown.stderr
    first, second, third = shown.stdout.splitlines()
    assert [json.loads(first), json.loads(second), third] == [*wanted, "plain"]
    whole = [json.loads(line) for line in klog(*read, "--schema", "--output", "jsonl").stdout.splitlines()]
    assert [one["value"] for one in whole[:2]] == wanted and whole[0]["value_schema_id"] == schema_id
    assert [one["offset"] for one in whole] == sorted(one["offset"] for one in whole)
    assert "value_error" in whole[2] and str(999_999) in whole[3]["value_error"] and whole[4]["value"] is None
    noted = klog(*read, "--schema").stderr
    assert "2 of 5" in noted and str(999_999) in noted
    assert klog(*read, "--schema", "-f", "%s").code == 2
