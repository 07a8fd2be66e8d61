"""How commands are declared, and the classes that make typer's commands klog's.

    topic = Noun("topic", "Topics.")

    @topic.command("list", rows="klog.admin.topics:TopicSummary")
    async def list_topics(invocation: Invocation, pattern: str | None = argument("PATTERN", "Only ...")):

A command takes the invocation, then its own parameters, each with `flag` or `argument`; it is async or not; it returns
rows, a ``Report``, an exit code or nothing. The flags of every command are added here, and everything that is the same
for all happens in ``klog.cli.invocation.perform``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command
from typer.models import OptionInfo

from klog.cli import flags, other_words
from klog.cli.error_report import EXIT_USAGE, write
from klog.cli.flag_parsing import WrongWords, convert_here
from klog.cli.flags import GlobalFlags
from klog.cli.name_cache import BY_FLAG, COMPLETERS
from klog.cli.traits import Traits, command_name
from klog.render import Format, Report, render
from klog.render.columns import ColumnType, column_types

CommandFunction = Callable[..., Any]

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}

OTHER_IDS = frozenset({"id", "cluster_id", "topic_id"})
"""Flags whose ID is not that of a broker there is."""

VERB_ALIASES = {"ls": "list", "rm": "delete"}
"""Hidden: what fingers type. A noun's own verb of that name goes first."""


class Parsing:
    """What commands and groups parse alike; to be named before Typer's class."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer's, which raises errors of some flags without the command that they belong to."""
        try:
            surplus: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        return surplus

    def get_help_option(self, ctx: Any) -> Any:
        """``-h/--help``, converted as all other flags are."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            convert_here(option, bool, typer.Option())
        return option


class KlogCommand(Parsing, TyperCommand):
    """One command: its own flags and those of every command are listed apart, arguments as man pages write them."""

    traits: Traits = Traits()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.traits.value_optional:
            args = _with_empty_values(args, self.traits.value_optional)
        surplus = super().parse_args(ctx, args)
        if surplus and not ctx.resilient_parsing:
            raise WrongWords(f"unexpected argument {surplus[0]!r}", ctx, hint=self.usage_hint(ctx))
        return surplus

    def show_schema(self, ctx: Any) -> None:
        """Show the columns of the rows, and end; UsageError where there are none."""
        row_type = self.traits.row_type()
        if row_type is None:
            hint = "-o schema is for commands that show rows"
            raise WrongWords(f"{ctx.command_path} shows no rows, so it has no columns", ctx, hint=hint)
        render(Report("schema", ColumnType, column_types(row_type)), Format.TABLE, sys.stdout)
        ctx.exit(0)

    def usage_hint(self, ctx: Any) -> str:
        """The hint where something is missing."""
        return f"usage: {usage_line(ctx)}"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[FLAGS]", *(usage_of(argument) for argument in arguments(self))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        own: list[tuple[str, tuple[str, str]]] = []
        common: list[tuple[str, tuple[str, str]]] = []
        for parameter in self.get_params(ctx):
            record = help_record(parameter)
            if record is None:
                continue
            shared = getattr(parameter, "rich_help_panel", None) == flags.GLOBAL_PANEL or parameter.name == "help"
            (common if shared else own).append((parameter.param_type_name, record))
        for title, records in (
            ("Arguments", [record for kind, record in own if kind == "argument"]),
            ("Flags", [record for kind, record in own if kind == "option"]),
        ):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        self._format_examples(ctx, formatter)
        with formatter.section(flags.GLOBAL_PANEL):
            formatter.write_dl([record for _, record in common])

    def _format_examples(self, ctx: Any, formatter: Any) -> None:
        """Lines to copy, so they are not wrapped."""
        from klog.cli.examples import examples_of

        found = examples_of(tuple(command_name(ctx).split(".")))
        if found:
            with formatter.section("Examples"):
                for one in found:
                    formatter.write(f"  {one.line}\n")
                    formatter.write_text(f"    {one.purpose}")


def _with_empty_values(args: list[str], flags: tuple[str, ...]) -> list[str]:
    """``tail orders -f`` and ``tail -f -e orders``, where ``-f`` has a value: what follows it is a flag, or nothing.

    A format may begin with a dash; it has a ``%``.
    """
    flags_end = args.index("--") if "--" in args else len(args)
    found = []
    for at, word in enumerate(args):
        follower = args[at + 1] if at + 1 < len(args) else "-"
        found.append(word)
        if at < flags_end and word in flags and follower.startswith("-") and "%" not in follower:
            found.append("")
    return found


class KlogGroup(Parsing, TyperGroup):
    """Commands under one name. Without arguments it shows its help, as wrong usage; a name that it does not have
    brings the nearest ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            write(sys.stderr, self.get_help(ctx) + "\n")
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and not args[0].startswith("-") and not self.has_command(ctx, args[0]):
            near = self.near_commands(ctx, args[0])
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"{ctx.command_path} has no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def near_commands(self, ctx: Any, word: str) -> list[str]:
        """The commands that may be meant by an unknown word."""
        return get_close_matches(word.lower(), self.list_commands(ctx), n=2)

    def has_command(self, ctx: Any, name: str) -> bool:
        """Whether there is a command of this name."""
        return self.get_command(ctx, name) is not None


class Noun(KlogGroup):
    """A noun of the command line: its verbs, with the hidden aliases ``ls`` and ``rm``."""

    def __init__(self, name: str, help: str) -> None:
        super().__init__(name=name, help=help, context_settings=HELP_FLAGS, rich_markup_mode=None)

    def command(self, verb: str, **traits: Any) -> Callable[[CommandFunction], CommandFunction]:
        """Declare ``klog NOUN VERB``; the keywords are those of ``Traits``."""

        def declare(function: CommandFunction) -> CommandFunction:
            self.add_command(build(verb, function, Traits(**traits)))
            return function

        return declare

    def near_commands(self, ctx: Any, word: str) -> list[str]:
        gone = other_words.GONE.get(f"{self.name} {word}")
        if gone is not None:
            return [gone]
        meant = [verb for verb in other_words.VERBS.get(word, ()) if verb in self.commands]
        return meant[:1] or super().near_commands(ctx, word)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, VERB_ALIASES.get(cmd_name, cmd_name))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["VERB", "[ARGUMENTS]", "[FLAGS]"]


def top_command(name: str, **traits: Any) -> Callable[[CommandFunction], KlogCommand]:
    """Declare ``klog NAME``, a command without a noun; the keywords are those of ``Traits``."""
    return lambda function: build(name, function, Traits(**traits))


def build(name: str, function: CommandFunction, traits: Traits) -> KlogCommand:
    """The command of a function: the function's parameters, and the global flags behind them."""

    def callback(ctx: typer.Context, **values: Any) -> None:
        from klog.cli.invocation import perform

        perform(ctx, function, traits, GlobalFlags(**{one.name: values.pop(one.name) for one in shared}), values)

    _, *own = flags.parameters(function).values()
    shared = traits.common_flags()
    if any(parameter.name == "properties" for parameter in own):
        shared = [parameter for parameter in shared if parameter.name != "connect_by"]
    command = typer_command(name, callback, [*own, *shared], inspect.getdoc(function))
    command.traits = traits
    return command


def typer_command(
    name: str, callback: CommandFunction, parameters: Sequence[inspect.Parameter], help: str | None
) -> KlogCommand:
    """Typer's command that calls a function with the context and the parameters' values, which klog converts."""
    given = list(map(declared, parameters))
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    callback.__signature__ = inspect.Signature([context, *given])  # type: ignore[attr-defined]
    callback.__annotations__ = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # What is one argument too many is named by KlogCommand.parse_args.
    context_settings = {**HELP_FLAGS, "allow_extra_args": True}
    app.command(name, cls=KlogCommand, help=help, context_settings=context_settings)(callback)
    command = get_command(app)
    assert isinstance(command, KlogCommand)
    made: list[Any] = command.params
    for parameter, one in zip(made, given, strict=True):
        parameter.metavar = parameter.metavar or one.name.upper().replace("_", "-")
        convert_here(parameter, one.annotation, one.default)
    return command


def declared(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter in Typer's default style: its type, and the flag or argument with its default and what completes it.

    A flag of a type `bool` that is not given is False; others have the default that stands beside them.
    """
    kind, info = parameter.annotation, copy(parameter.default)
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
        info = copy(info)
        info.default = ... if parameter.default is parameter.empty else parameter.default
    if kind is bool and info.default is None:
        info.default = False
    is_other_id = isinstance(info, OptionInfo) and parameter.name in OTHER_IDS
    if info.autocompletion is None and not is_other_id:
        info.autocompletion = BY_FLAG.get(parameter.name) or COMPLETERS.get(info.metavar or "")
    return parameter.replace(annotation=kind, default=info)


def arguments(command: KlogCommand) -> list[TyperArgument]:
    """A command's arguments, in order."""
    return [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]


def usage_of(argument: TyperArgument) -> str:
    """``NAME``, ``[NAME]``, ``NAME...`` or ``[NAME...]``."""
    text = str(argument.metavar) + ("..." if argument.nargs != 1 else "")
    return text if argument.required else f"[{text}]"


def usage_line(ctx: Any) -> str:
    """``klog topic alter TOPIC -p N [FLAGS]``: a command with its arguments and the flags that it needs."""
    command = ctx.command
    needed = [flag for flag in command.params if flag.required and flag.param_type_name == "option"]
    flag_parts = [f"{flag.opts[0]} {flag.metavar}" for flag in needed]
    return " ".join([ctx.command_path, *map(usage_of, arguments(command)), *flag_parts, "[FLAGS]"])


def flag_words(option: Any) -> str:
    """``-p, --partitions N``: an option's words, short ones first, and what it takes."""
    words = sorted([*option.opts, *option.secondary_opts], key=lambda word: word.startswith("--"))
    takes = "" if option.is_flag or option.count else f" {option.metavar}"
    return ", ".join(words) + takes


def help_record(parameter: Any) -> tuple[str, str] | None:
    """The two columns of a help text; None for hidden parameters."""
    if parameter.hidden:
        return None
    notes = []
    if parameter.param_type_name == "argument":
        left = usage_of(parameter)
    else:
        left = flag_words(parameter)
        if parameter.required:
            notes.append("required")
    if parameter.multiple or parameter.nargs == -1:
        notes.append("repeatable")
    default = parameter.default
    if parameter.show_default and default not in (None, [], (), False) and not callable(default):
        notes.append(f"default: {getattr(default, 'value', default)}")
    text = parameter.help or ""
    return left, f"{text} [{'; '.join(notes)}]" if notes else text
