"""The root of the command tree: finds nouns without loading any, and runs a command line to its exit code."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperCommand, TyperGroup

from klog import __version__
from klog.cli import error_report, flags, interrupt, other_words, standard_streams, wrong_usage
from klog.cli.command import HELP_FLAGS, KlogCommand, KlogGroup, Noun, help_record, typer_command
from klog.cli.command_table import ENTRIES, Entry, entry_named
from klog.cli.flags import GlobalFlags
from klog.cli.traits import Traits

COMPLETE_VARIABLE = "_KLOG_COMPLETE"
"""Set by a shell's completion script: klog then answers what may stand next, and does nothing else."""

NOUNS_NAMED_MAX = 3
"""Of those that have a verb which came without its noun."""

SLIP = 0.8
"""How like a command a word is that has letters of it swapped: no noun is loaded then to look for such a verb."""

ABOUT = """A distributed log: manage the brokers, topics, messages and files of a cluster.

Start a cluster on this machine with `klog up`. See `klog NOUN --help` and `klog NOUN VERB --help` for details.
"""


class RootGroup(KlogGroup):
    """``klog`` itself, with the commands of ``klog.cli.command_table``. Their modules are imported when used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [entry.name for entry in ENTRIES]

    def has_command(self, ctx: Any, name: str) -> bool:
        return entry_named(name) is not None

    def near_commands(self, ctx: Any, word: str) -> list[str]:
        meant = other_words.GONE.get(word) or other_words.COMMANDS.get(word.removesuffix(".sh"))
        if meant is not None:
            return [meant]
        nearest = get_close_matches(word.lower(), self.list_commands(ctx), n=1, cutoff=SLIP)
        if nearest:
            return nearest
        groups = (load(entry) for entry in ENTRIES)
        nouns = [one.name for one in groups if isinstance(one, Noun) and word in one.commands]
        return [f"{noun} {word}" for noun in nouns[:NOUNS_NAMED_MAX]] or super().near_commands(ctx, word)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = entry_named(cmd_name)
        return None if entry is None else load(entry)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, other_words.renamed(args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["NOUN", "VERB", "[ARGUMENTS]", "[FLAGS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for section in dict.fromkeys(entry.section for entry in ENTRIES):
            with formatter.section(section):
                formatter.write_dl([(entry.name, entry.help) for entry in ENTRIES if entry.section == section])
        records = [help_record(parameter) for parameter in self.get_params(ctx)]
        with formatter.section(flags.GLOBAL_PANEL):
            formatter.write_dl([record for record in records if record is not None])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        # A menu of names and help lines: Typer would load every noun to ask it for its own.
        names = [TyperCommand(entry.name, short_help=entry.help) for entry in ENTRIES]
        menu = TyperGroup(name=self.name, params=self.params, commands=names)
        return menu.shell_complete(typer.Context(menu), incomplete)

    def execute(self, arguments: list[str], **extra: Any) -> int:
        """Run a command line; its exit code. What the shell calls for each of its lines.

        ``help NOUN VERB`` is ``NOUN VERB --help``.
        """
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        try:
            result = self.main(args=arguments, prog_name="klog", standalone_mode=False, **extra)
            sys.stdout.flush()
        except typer.Abort:
            return error_report.EXIT_FAILED
        except BrokenPipeError:
            return 0  # the reader has seen enough (`| head`): that is a way to end, not an error
        except OSError as error:  # commands say what went wrong with theirs; what is left is the output
            standard_streams.output_failed(error)
            return error_report.EXIT_FAILED
        except SystemExit as leaving:
            # typer leaves so once it has answered a completion, and where it meets a closed pipe itself.
            return int(leaving.code or 0) if os.environ.get(COMPLETE_VARIABLE) else 0
        except Exception as error:
            if not isinstance(error, wrong_usage.WrongUsage):
                raise
            return wrong_usage.show(error, arguments)
        return result if isinstance(result, int) else 0


def load(entry: Entry) -> KlogCommand | Noun:
    """The command of an entry, its module imported."""
    command: KlogCommand | Noun = getattr(import_module(entry.module), entry.name)
    return command


def walk() -> Iterator[tuple[tuple[str, ...], KlogCommand]]:
    """Every command of the tree with its path, ``("topic", "list")``; for tests, man pages and completion."""
    for entry in ENTRIES:
        command = load(entry)
        if isinstance(command, Noun):
            for verb, child in command.commands.items():
                assert isinstance(child, KlogCommand)
                yield (entry.name, verb), child
        else:
            yield (entry.name,), command


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"klog {__version__}")
        raise typer.Exit


def _keep(ctx: typer.Context, version: bool, **values: Any) -> None:
    """Keeps the flags before the noun, for the command behind it."""
    here = GlobalFlags(**values)
    ctx.obj = here.over(ctx.obj) if isinstance(ctx.obj, GlobalFlags) else here


@cache
def root() -> RootGroup:
    """The root of the tree."""
    get_completion_inspect_parameters()  # Typer prepares completion where it makes its flags for it
    shown = flags.flag("--version", "Show the version of klog.", is_eager=True, callback=_show_version)
    version = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, annotation=bool, default=shown)
    made = typer_command("klog", _keep, [version, *Traits().common_flags()], ABOUT)
    return RootGroup(
        name="klog",
        callback=made.callback,
        params=made.params,
        help=ABOUT,
        context_settings=HELP_FLAGS,
        rich_markup_mode=None,
    )


def run(arguments: list[str]) -> int:
    """What the command ``klog`` does: one command line, to its exit code."""
    os.umask(0o077)  # what klog writes is its user's alone, and so is what its servers write
    interrupt.install()
    standard_streams.open_all()
    try:
        code = root().execute(arguments)
    except KeyboardInterrupt:
        code = interrupt.exit_code()
    return standard_streams.flush_all(code)
