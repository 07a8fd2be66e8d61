"""Goal: whatever command there is or will be keeps the general rules. Method: walk the tree and check each.

A new noun is checked by being in the tree; what it must show by contract is added to COLUMNS.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperOption

from klog.cli.command import Noun, arguments
from klog.cli.command_table import ENTRIES, entry_named
from klog.cli.root import load, walk
from klog.render.columns import columns
from tests.cli.runner import klog
from tests.rows import each

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {" ".join(words): command for words, command in walk()}
CONNECTING = sorted(name for name, command in COMMANDS.items() if command.traits.connects)

COLUMNS = {
    "status": "SEVERITY WHAT FOUND DO CAUSE CONSEQUENCES",
    "broker list": "BROKER HOST PORT RACK CONTROLLER LEADERS REPLICAS SINCE",
    "broker describe": "BROKER HOST PORT RACK CONTROLLER LEADERS REPLICAS SINCE",
    "broker restart": "BROKER HOST PORT RESTARTED MS ALONE",
    "broker config": "NAME VALUE SOURCE DEFAULT EFFECT DOC",
    "topic list": "TOPIC PARTITIONS REPLICATION-FACTOR MESSAGES BYTES UNDER-REPLICATED LAST-WRITTEN",
    "topic describe": "TOPIC PARTITION LEADER LEADER-EPOCH REPLICAS ISR LOG-START-OFFSET LOG-END-OFFSET MESSAGES BYTES",
    "offset list": "TOPIC PARTITION OFFSET TIMESTAMP",
    "reassign plan": "TOPIC PARTITION FROM TO STATE PERCENT BYTES-LEFT ETA",
    "reassign execute": "TOPIC PARTITION FROM TO STATE PERCENT BYTES-LEFT ETA",
    "reassign status": "TOPIC PARTITION FROM TO STATE PERCENT BYTES-LEFT ETA",
    "reassign cancel": "TOPIC PARTITION FROM TO STATE PERCENT BYTES-LEFT ETA",
    "topic elect": "TOPIC PARTITION OLD NEW",
    "acl list": "PRINCIPAL PERMISSION OPERATION RESOURCE PATTERN HOST",
    "acl check": "ALLOWED RULE",
    "quota list": "USER CLIENT PRODUCER-BYTE-RATE CONSUMER-BYTE-RATE REQUEST-PERCENTAGE CONTROLLER-MUTATION-RATE IP "
    "CONNECTION-CREATION-RATE",
    "group list": "GROUP STATE PROTOCOL COORDINATOR MEMBERS",
    "group describe": "MEMBER CLIENT HOST TOPIC PARTITION COMMITTED HEARTBEAT-MS",
    "lag": "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-START-OFFSET LOG-END-OFFSET LAG LAG-BYTES LAG-MS OWNER",
    "replay": "TOPIC PARTITION FROM TO MESSAGES BYTES",
    "mirror": "SOURCE TOPIC PARTITION MESSAGES RATE LAG",
    "where": "BROKER FILE POSITION LENGTH BATCH-OFFSET CRC STATE",
    "audit run": "TOPIC WINDOW TIER MESSAGES MISSING EXTRA STATE PRODUCERS",
    "audit report": "TOPIC WINDOW TIER MESSAGES MISSING EXTRA STATE PRODUCERS",
    "export run": "TOPIC PARTITION FROM TO MESSAGES FILES BYTES UNDECODABLE",
    "export status": "TOPIC PARTITION EXPORTED LOG-END-OFFSET LAG LAG-MS UNDECODABLE",
    "export list": "BATCH BATCHES COMMITTED-AT MESSAGES UNDECODABLE BYTES FILES GAPS",
    "export compact": "FROM TO MESSAGES FILES-BEFORE BYTES-BEFORE FILES BYTES",
    "export gc": "WHAT PATH FILES BYTES AGE-S",
    "stream list": "NAME STATE FROM TO PROGRAM BATCH BATCH-AT",
    "stream run": "BATCH AT ROWS MS WATERMARK LATE",
    "schema list": "ID SUBJECT VERSION TYPE",
    "schema register": "ID SUBJECT VERSION TYPE",
    "topic verify": "TOPIC PARTITION BROKER STATE FIRST-DIFFERENCE BYTES CRC",
    "client list": "BROKER CLIENT ADDRESS PRINCIPAL LIBRARY READS WRITES IDLE-MS",
    "lost list": "TOPIC PARTITION BROKER FROM TO MESSAGES REASON TIME",
    "metrics": "BROKER NAME LABELS VALUE",
    "topic restore": "TOPIC PARTITIONS MESSAGES BYTES DELETED-AT GROUPS",
    "profile list": "NAME BOOTSTRAP ZOOKEEPER CLUSTER-ID PROTECTED READ-ONLY COLOUR CURRENT",
    "profile show": "NAME BOOTSTRAP ZOOKEEPER CLUSTER-ID PROTECTED READ-ONLY COLOUR CURRENT",
    "profile test": "NAME BOOTSTRAP CLUSTER-ID BROKERS MS",
    "log dump": "BASE-OFFSET END BYTES MESSAGES CODEC TIMESTAMP EPOCH PRODUCER STATE",
}
"""The columns of the contract, as a plain table shows them."""

ASKING = {
    *("topic delete", "topic alter", "log repair", "reassign execute", "reassign cancel"),
    *("group rewind", "group delete", "group forget", "offset import", "export gc", "zookeeper rebuild", "undo"),
    "topic config",
    *("zk set", "zk create", "zk rm", "user delete", "stream stop", "security zookeeper"),
    *("topic create", "broker stop", "broker restart", "schema delete"),
    *("acl add", "acl remove", "quota remove", "user passwd", "down", "zookeeper stop"),
}
"""What may ask first; nothing else does. Those of the last two lines ask in some cases, and on protected clusters."""

WITHOUT_DRY_RUN = {
    *("produce", "tail", "mirror", "perf produce", "perf latency"),
    *("stream run", "audit run", "schema serve", "security users"),
}
"""What changes the cluster and shows no preview: it sends messages, runs on, or begins a cluster that is empty."""

READING = {
    *("status", "where", "topic list", "topic describe", "group list", "group describe"),
    *("group peek", "offset list", "offset export", "broker list", "broker describe", "broker config", "reassign plan"),
    *("reassign status", "topic verify", "client list", "lost list", "lost show"),
    *("export run", "export status", "export verify"),
    *("export submit", "schema list", "schema get", "schema check", "audit report", "perf consume"),
    *(f"zk {verb}" for verb in ("ls", "tree", "get", "stat", "find")),
    *("shell", "events", "lag", "metrics", "top"),
    *("acl list", "acl check", "user list", "quota list"),
    *("sql", "stream status"),
}
"""What connects and changes nothing."""

SOMETIMES = {"tail", "topic config", "schema level", "replay", "audit run", "stream run", "export run"}
"""What changes the cluster with some flags or arguments only, and asks `Invocation.check_may_change` itself."""

WORDS = {
    **{f"acl {verb}": ["acl", verb, "alice", "read", "topic:t"] for verb in ("add", "remove", "check")},
    "quota set": ["quota", "set", "producer_byte_rate=1MB", "--user", "alice"],
    "quota remove": ["quota", "remove", "--user", "alice"],
    "broker restart": ["broker", "restart", "1"],
    **{f"user {verb}": ["user", verb, "alice", "--generate"] for verb in ("add", "passwd")},
    "tail": ["tail", "some-name"],
    "stream run": ["stream", "run", "-e", "SELECT 1", "--from", "some-name", "--to", "topic:other-name"],
    "group rewind": ["group", "rewind", "some-name", "--to", "start"],
    "offset import": ["offset", "import", str(ROOT / "tests" / "cli" / "offsets.txt")],
    "reassign execute": ["reassign", "execute", str(ROOT / "tests" / "cli" / "plan.json")],
}
"""Command lines that need more than a value for each argument."""


def words_for(name: str) -> list[str]:
    """A command line of this command that parses, without flags that it does not need."""
    if name in WORDS:
        return list(WORDS[name])
    command = COMMANDS[name]
    words = name.split()
    for argument in arguments(command):
        if argument.required:
            words.append(_value(argument))
    for parameter in command.params:
        if isinstance(parameter, TyperOption) and parameter.required:
            words += [parameter.opts[0], _value(parameter)]
    return words


def _value(parameter: TyperArgument | TyperOption) -> str:
    described = parameter.type_descriptor
    if described.is_choice and described.choices:
        return str(getattr(described.choices[0], "value", described.choices[0]))
    if described.annotation is int:
        return "1"
    return "/brokers" if parameter.metavar == "PATH" else "some-name"


def output(name: str, form: str = "json") -> list[str]:
    """The words that ask for a format; ``tail`` has it under its long name only, and writes lines."""
    if name == "tail":
        return ["--output", "jsonl" if form == "json" else form]
    if name == "stream run":
        return ["-o", "jsonl" if form == "json" else form]
    return ["-o", form]


@each("name", COMMANDS)
def test_a_command_and_all_its_parameters_say_what_they_are(name: str) -> None:
    command = COMMANDS[name]
    assert command.help and command.help[0].isupper() and command.help.splitlines()[0].rstrip().endswith((".", "?"))
    for parameter in command.params:
        assert isinstance(parameter, TyperArgument | TyperOption)
        assert parameter.help, f"{name}: {parameter.name} has no help"
        assert parameter.help.rstrip().endswith((".", "].")), f"{name}: {parameter.help!r} is no sentence"
        if isinstance(parameter, TyperOption):
            if not parameter.is_flag:
                assert parameter.metavar, f"{name}: {parameter.opts} does not say what it takes"
            assert any(word.startswith("--") for word in parameter.opts), f"{name}: {parameter.opts} has no long name"


@each("name", COMMANDS)
def test_help_has_every_flag(name: str) -> None:
    ran = klog(*name.split(), "--help")
    assert ran.code == 0
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, TyperOption):
            for word in parameter.opts:
                assert re.search(rf"(^|\s){re.escape(word)}\b", ran.stdout), f"{word} is not in the help of {name}"


@each("name", COMMANDS)
def test_no_word_means_two_things_in_one_command(name: str) -> None:
    words = [word for parameter in COMMANDS[name].params for word in (*parameter.opts, *parameter.secondary_opts)]
    assert sorted(words) == sorted(set(words))


@each("name", COMMANDS)
def test_a_short_flag_means_the_same_everywhere(name: str) -> None:
    """But for tail, whose -o, -f, -c, -n and -e are kcat's, and the shell's script flags.

    -X is a setting by its name: of the connection alone, or of more."""
    meanings = {"-B": "bootstrap_server", "-z": "zookeeper", "-o": "output", "-q": "quiet", "-v": "verbose"}
    meanings |= {"-y": "yes", "-r": "regex"}
    assert sum("-X" in parameter.opts for parameter in COMMANDS[name].params) <= 1
    meanings["-X"] = "properties" if any(one.name == "properties" for one in COMMANDS[name].params) else "connect_by"
    for parameter in COMMANDS[name].params:
        for word in parameter.opts:
            if (name, word) != ("tail", "-o"):
                assert meanings.get(word, parameter.name) == parameter.name, f"{name}: {word}"


@each("name", COMMANDS)
def test_an_unknown_flag_is_wrong_usage_in_words_and_in_json(name: str) -> None:
    said = klog(*words_for(name), "--no-such-flag")
    assert said.code == 2
    assert said.stdout == ""
    assert "--no-such-flag" in said.stderr and "--help" in said.stderr
    assert "Traceback" not in said.stderr
    as_json = klog(*words_for(name), "--no-such-flag", *output(name))
    assert as_json.code == 2
    envelope = json.loads(as_json.stderr)
    assert envelope["_command"] == name.replace(" ", ".")
    assert envelope["error"]["code"] == "USAGE"
    assert "--no-such-flag" in envelope["error"]["message"]
    assert set(envelope["error"]) >= {"code", "message", "hint"}


@each("name", COMMANDS)
def test_every_command_takes_the_flags_of_every_command(name: str) -> None:
    command = COMMANDS[name]
    words = {word for parameter in command.params for word in parameter.opts}
    assert {"--output", "--no-header", "-q", "-v"} <= words
    assert ("-o" in words) == (command.traits.output_letter or name == "tail")
    if command.traits.connects:
        assert {"-B", "--bootstrap-server", "--bootstrap-servers", "--broker-list"} <= words
        assert {"-z", "--zookeeper", "--profile", "--timeout", "--trace"} <= words
    assert ({"-y", "--yes", "--dry-run"} <= words) == command.traits.asks


def test_each_command_that_connects_takes_a_client_config() -> None:
    """Those with the flags of a connection, and those that name clusters in flags of their own."""
    no_clients = {"broker start", "zookeeper start", "security init", "security add", "log dump"}
    for name, command in COMMANDS.items():
        names_a_cluster = any("HOST:PORT" in (parameter.metavar or "") for parameter in command.params)
        if command.traits.connects or (names_a_cluster and name not in no_clients):
            assert "--client-config" in {word for one in command.params for word in one.opts}, name


def test_only_what_the_contract_names_asks_first() -> None:
    assert {name for name, command in COMMANDS.items() if command.traits.asks} <= ASKING


@each("name", [name for name, command in COMMANDS.items() if command.traits.rows])
def test_rows_are_dataclasses_with_lawful_columns(name: str) -> None:
    row_type = COMMANDS[name].traits.row_type()
    assert row_type is not None
    shown = columns(row_type)
    for column in shown:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name)
        assert column.head == column.name.upper().replace("_", "-")
        assert not re.search(r"(^|_)(records?|counts?|size|num_messages)($|_)", column.name), (
            f"{column.head}: one idea has one name, messages and bytes"
        )
    if name in COLUMNS:
        plain = [column.head for column in shown if not column.wide and column.name not in ("error", "message")]
        assert " ".join(plain) == COLUMNS[name]


def test_the_registries_of_zookeeper_begin_with_path_version_session() -> None:
    for name in ("zk ls", "zk tree", "zk get"):
        row_type = COMMANDS[name].traits.row_type()
        assert row_type is not None
        assert [column.head for column in columns(row_type)][:3] == ["PATH", "VERSION", "SESSION"]


@each("entry", [entry for entry in ENTRIES if isinstance(load(entry), Noun)], ids=lambda entry: entry.name)
def test_plurals_and_hidden_verbs_are_aliases(entry: Any) -> None:
    assert entry_named(f"{entry.name}s") is entry
    verbs = {name.split()[1] for name in COMMANDS if name.split()[0] == entry.name}
    for short, verb in (("ls", "list"), ("rm", "delete")):
        if verb in verbs and short not in verbs:
            ran = klog(f"{entry.name}s", short, "--no-such-flag", "-o", "json")
            assert json.loads(ran.stderr)["_command"] == f"{entry.name}.{verb}"
            assert not re.search(rf"^\s+{short}\s", klog(entry.name, "--help").stdout, re.MULTILINE)


# --- A cluster that is not there -------------------------------------------------------------------------------------

LIMIT_S = 10.0
"""3 s to connect, the 1 s of --timeout to answer, and what a busy machine adds."""

ASKING_A_BROKER = [name for name in CONNECTING if name not in ("shell", "zookeeper rebuild")]
"""But for the one that reads commands, here none, and the one that makes the cluster."""


@each("name", ASKING_A_BROKER)
def test_a_dead_port_is_an_error_in_time_that_says_where_why_and_what_to_do(
    name: str, dead_address: str, home: Path
) -> None:
    begun = time.monotonic()
    ran = klog(*words_for(name), "-B", dead_address, "--timeout", "1s", *output(name))
    assert time.monotonic() - begun <= LIMIT_S
    assert ran.code == 1
    if name == "status":
        assert [row["kind"] for row in ran.rows] == ["no-brokers"] and dead_address in ran.rows[0]["found"]
        return
    assert ran.stdout == ""
    error = ran.error
    assert error["code"] == "CANNOT_CONNECT"
    assert dead_address in error["message"]
    assert "-B" in json.dumps(error)
    assert error["hint"]
    assert error["cluster"] == f"{dead_address} (from flag -B)"


@each("name", ASKING_A_BROKER)
def test_without_any_cluster_the_error_says_how_to_name_one(name: str, home: Path) -> None:
    ran = klog(*words_for(name), *output(name))
    assert ran.code == 1
    assert ran.error["code"] == "NO_CLUSTER"
    assert "klog up" in ran.error["hint"] and "-B" in ran.error["hint"]


def test_positions_that_begin_with_a_sign_are_values() -> None:
    for words in (["tail", "t", "-o", "-10"], ["tail", "t", "-o-10"], ["tail", "t", "-o", "@-1h:end"]):
        assert klog(*words, "--output", "jsonl").error["code"] == "NO_CLUSTER"
    assert klog("offset", "list", "t", "--at", "-10", "-o", "json").error["code"] == "NO_CLUSTER"


def test_flags_may_stand_before_the_noun(dead_address: str) -> None:
    ran = klog("-B", dead_address, "-o", "json", "topic", "list")
    assert ran.error["cluster"] == f"{dead_address} (from flag -B)"
    ran = klog("-B", "127.0.0.1:1", "-o", "json", "topic", "list", "-B", dead_address)
    assert ran.error["cluster"] == f"{dead_address} (from flag -B)"


def test_each_command_that_connects_is_known_to_read_or_to_change() -> None:
    changing = {name for name in CONNECTING if COMMANDS[name].traits.changes}
    assert changing == set(CONNECTING) - READING - SOMETIMES
    assert ASKING & set(CONNECTING) <= changing | SOMETIMES


def test_what_changes_something_shows_it_first() -> None:
    """By --dry-run."""
    for name in {name for name, command in COMMANDS.items() if command.traits.changes} | SOMETIMES:
        words = {word for parameter in COMMANDS[name].params for word in parameter.opts}
        assert ("--dry-run" in words) == (name not in WITHOUT_DRY_RUN), name
