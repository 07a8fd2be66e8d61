"""The root of the command tree: finds nouns without loading any, and runs a command line to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import typer
from typer._click.core import Command, Context
from typer._click.exceptions import ClickException, UsageError
from typer._click.formatting import HelpFormatter
from typer._click.shell_completion import CompletionItem
from typer.core import TyperGroup

from klog import __version__
from klog.cli import failure, flags, interrupt
from klog.cli.command import HELP_FLAGS, KlogCommand, NounGroup, PlainHelp, command_name, help_record, unknown_command
from klog.cli.entries import ENTRIES, Entry, entry_named
from klog.errors import KlogError

COMPLETE_VARIABLE = "_KLOG_COMPLETE"
"""Set by a shell's completion script: klog then answers what may stand next, and does nothing else."""

ABOUT = """A log that many can write and read: the brokers, topics, messages and files of a cluster.

Start one on this machine with `klog up`; `klog NOUN --help` and `klog NOUN VERB --help` say more.
"""


class RootGroup(PlainHelp, TyperGroup):
    """``klog`` itself. Its commands come from ``klog.cli.entries``; each module is imported when its word is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [entry.name for entry in ENTRIES]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        entry = entry_named(cmd_name)
        return None if entry is None else load(entry)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and entry_named(args[0]) is None:
            raise unknown_command(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return ["NOUN", "VERB", "[ARGUMENTS]", "[FLAGS]"]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        for section in dict.fromkeys(entry.section for entry in ENTRIES):
            with formatter.section(section):
                formatter.write_dl([(entry.name, entry.help) for entry in ENTRIES if entry.section == section])
        records = [help_record(parameter, ctx) for parameter in self.get_params(ctx)]
        with formatter.section(flags.GLOBAL_PANEL):
            formatter.write_dl([record for record in records if record is not None])

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        words = [CompletionItem(entry.name, help=entry.help) for entry in ENTRIES if entry.name.startswith(incomplete)]
        return words or Command.shell_complete(self, ctx, incomplete)

    def main(  # type: ignore[override]  # the rest of typer's keywords are in `extra`
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run a command line and leave by SystemExit with its exit code, as typer's own does."""
        sys.exit(self.execute(list(sys.argv[1:] if args is None else args), **extra))

    def execute(self, words: list[str], **extra: Any) -> int:
        """Run a command line; its exit code. What the shell calls for each of its lines.

        ``help WORDS`` is ``WORDS --help``.
        """
        if words[:1] == ["help"]:
            words = [*words[1:], "--help"]
        try:
            result = super().main(args=words, prog_name="klog", standalone_mode=False, **extra)
            sys.stdout.flush()
        except ClickException as error:
            return _wrong_usage(error, words)
        except typer.Abort:
            return failure.EXIT_FAILED
        except BrokenPipeError:
            return 0  # the reader has seen enough (`| head`): that is a way to end, not an error
        except OSError as error:  # commands say what went wrong with theirs; what is left is the output
            failure.write(sys.stderr, f"klog: writing the output: {error.strerror}\n")
            interrupt.discard_output()
            return failure.EXIT_FAILED
        except SystemExit as leaving:
            # typer leaves so once it has answered a completion, and where it meets a closed pipe itself.
            return int(leaving.code or 0) if os.environ.get(COMPLETE_VARIABLE) else 0
        return result if isinstance(result, int) else 0


def load(entry: Entry) -> Command:
    """The command behind a word, its module imported."""
    command: Command = getattr(import_module(entry.module), entry.attribute).click_command()
    return command


def walk() -> Iterator[tuple[tuple[str, ...], KlogCommand]]:
    """Every command of the tree with its words, ``("topic", "list")``; for tests, man pages and completion."""
    for entry in ENTRIES:
        command = load(entry)
        if isinstance(command, NounGroup):
            for verb, child in command.commands.items():
                assert isinstance(child, KlogCommand)
                yield (entry.name, verb), child
        else:
            assert isinstance(command, KlogCommand)
            yield (entry.name,), command


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"klog {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="klog",
    cls=RootGroup,
    help=ABOUT,
    add_completion=False,
    no_args_is_help=True,
    context_settings=HELP_FLAGS,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="The version of klog."
    ),
    output: flags.Output = None,
    no_header: flags.NoHeader = False,
    quiet: flags.Quiet = False,
    verbose: flags.Verbose = False,
    bootstrap_server: flags.BootstrapServer = None,
    zookeeper: flags.ZooKeeperFlag = None,
    profile: flags.Profile = None,
    timeout: flags.Timeout = None,
    trace: flags.Trace = False,
) -> None:
    """Keeps the flags before the noun, for the command behind it."""
    from klog.cli.invocation import Shared

    here = Shared(output, no_header, quiet, verbose, bootstrap_server, zookeeper, profile, timeout, trace)
    ctx.obj = here.over(ctx.obj) if isinstance(ctx.obj, Shared) else here


def root() -> RootGroup:
    """The root of the tree, made once."""
    global _ROOT
    if _ROOT is None:
        from typer.main import get_command

        from klog.cli.coercion import coerce_plainly

        group = get_command(app)
        assert isinstance(group, RootGroup)
        for parameter in group.params:
            coerce_plainly(parameter)  # type: ignore[arg-type]
        group.help = ABOUT
        _ROOT = group
    return _ROOT


_ROOT: RootGroup | None = None


def run(words: list[str]) -> int:
    """What the command ``klog`` does: one command line, to its exit code."""
    if os.environ.get(COMPLETE_VARIABLE):
        from typer._completion_classes import completion_init

        completion_init()
    interrupt.install()
    _open_streams()
    try:
        code = root().execute(words)
    except KeyboardInterrupt:
        code = interrupt.exit_code()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"klog: writing the output: {error.strerror}\n")
            code = code or failure.EXIT_FAILED
        interrupt.discard_output()
    return code


def _open_streams() -> None:
    """Streams that show any text somehow: names of files and znodes may hold any bytes, and the locale may be C.

    One that the caller has closed (``>&-``) is nowhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115


def _wrong_usage(error: ClickException, words: list[str]) -> int:
    """Show that a command line could not be parsed; exit code 2."""
    ctx = error.ctx if isinstance(error, UsageError) else None
    form = failure.format_in(words)
    if type(error).__name__ == "NoArgsIsHelpError":
        failure.write(sys.stderr, error.format_message() + "\n")
        return error.exit_code
    path = ctx.command_path if ctx is not None else "klog"
    wrong = KlogError(error.format_message().replace("\n\t", " "), hint=f"`{path} --help` shows what there is")
    wrong.code = "USAGE"
    failure.show(wrong, command_name(ctx) if ctx is not None else "", form, sys.stderr)
    return error.exit_code
