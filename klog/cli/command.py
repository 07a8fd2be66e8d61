"""How commands are declared, and the classes that make typer's commands klog's.

    topic = Noun("topic", "Topics.")

    @topic.command("list", rows="klog.ops.topics:TopicSummary")
    async def list_topics(invocation: Invocation, pattern: Annotated[str | None, typer.Argument(help="...")] = None):

A command takes the invocation, then its own parameters; it is async or not; it returns rows, a ``Report``, an exit
code or nothing. The flags of every command are added here, and everything that is the same for all happens in
``klog.cli.invocation.perform``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer._click.core import Command, Context
from typer._click.exceptions import UsageError
from typer._click.formatting import HelpFormatter
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_from_info
from typer.models import CommandInfo

from klog.cli import flags
from klog.cli.coercion import coerce_plainly

CommandFunction = Callable[..., Any]

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}

VERB_ALIASES = {"ls": "list", "rm": "delete"}
"""Hidden: what fingers type. A noun's own verb of that name goes first."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a command says of itself besides its parameters.

    ``rows`` is ``module:Class`` of what it shows, loaded only when needed; ``connects``: it talks to a cluster;
    ``asks``: it asks before it acts; ``own_interrupt``: it ends in order on Ctrl-C by itself and exits 0;
    ``output_letter``: ``-o`` is the output format (not so in ``tail``).
    """

    rows: str | None = None
    connects: bool = True
    asks: bool = False
    own_interrupt: bool = False
    output_letter: bool = True

    def row_type(self) -> type | None:
        """The dataclass of the rows."""
        if self.rows is None:
            return None
        module, _, name = self.rows.partition(":")
        found: type = getattr(import_module(module), name)
        return found

    def shared_names(self) -> list[str]:
        """The names of the shared flags that the command has."""
        return [parameter.name for group in _groups(self) for parameter in flags.parameters(group)]


class PlainHelp:
    """``-h/--help`` converted as plainly as all else; to be named before typer's class."""

    def get_help_option(self, ctx: Context) -> TyperOption | None:
        option: TyperOption | None = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            coerce_plainly(option)
        return option


class KlogCommand(PlainHelp, TyperCommand):
    """One command: its own flags and those of every command are listed apart, arguments as man pages write them."""

    traits: Traits = Traits()

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                parameter.metavar = parameter.metavar or parameter.name.upper().replace("_", "-")
            coerce_plainly(parameter)  # type: ignore[arg-type]

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return ["[FLAGS]", *(usage_of(argument) for argument in arguments(self))]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        own: list[tuple[str, tuple[str, str]]] = []
        common: list[tuple[str, tuple[str, str]]] = []
        for parameter in self.get_params(ctx):
            record = help_record(parameter, ctx)
            if record is None:
                continue
            shared = getattr(parameter, "rich_help_panel", None) == flags.GLOBAL_PANEL or parameter.name == "help"
            (common if shared else own).append((parameter.param_type_name, record))
        for title, records in (
            ("Arguments", [record for kind, record in own if kind == "argument"]),
            ("Flags", [record for kind, record in own if kind == "option"]),
            (flags.GLOBAL_PANEL, [record for _, record in common]),
        ):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class NounGroup(PlainHelp, TyperGroup):
    """The verbs of one noun, with the hidden aliases ``ls`` and ``rm``."""

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, VERB_ALIASES.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise unknown_command(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return ["VERB", "[ARGUMENTS]", "[FLAGS]"]


class Noun:
    """A noun of the command line and its verbs."""

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self._group = NounGroup(
            name=name, help=help, no_args_is_help=True, context_settings=HELP_FLAGS, rich_markup_mode=None
        )

    def command(self, verb: str, **traits: Any) -> Callable[[CommandFunction], CommandFunction]:
        """Declare ``klog NOUN VERB``; the keywords are those of ``Traits``."""

        def declare(function: CommandFunction) -> CommandFunction:
            self._group.add_command(build(verb, function, Traits(**traits)))
            return function

        return declare

    def click_command(self) -> Command:
        """The group, for the root to hang in."""
        return self._group


class TopCommand:
    """A command that stands at the top, without a noun."""

    def __init__(self, name: str, function: CommandFunction, traits: Traits) -> None:
        self.name = name
        self._command = build(name, function, traits)

    def click_command(self) -> Command:
        """The command, for the root to hang in."""
        return self._command


def top_command(name: str, **traits: Any) -> Callable[[CommandFunction], TopCommand]:
    """Declare ``klog NAME``; the keywords are those of ``Traits``."""
    return lambda function: TopCommand(name, function, Traits(**traits))


def build(name: str, function: CommandFunction, traits: Traits) -> KlogCommand:
    """typer's command for a function: the function's parameters, and the shared flags behind them."""

    def callback(ctx: typer.Context, **values: Any) -> None:
        from klog.cli.invocation import perform

        perform(ctx, function, traits, values)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [parameter for group in _groups(traits) for parameter in flags.parameters(group)]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    callback.__signature__ = inspect.Signature([context, *keywords, *shared])  # type: ignore[attr-defined]
    callback.__annotations__ = {}
    info = CommandInfo(
        name=name,
        cls=KlogCommand,
        callback=callback,
        help=inspect.getdoc(function),
        context_settings=HELP_FLAGS,
    )
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    assert isinstance(command, KlogCommand)
    command.traits = traits
    return command


def _groups(traits: Traits) -> list[Callable[..., Any]]:
    groups: list[Callable[..., Any]] = [flags.output if traits.output_letter else flags.output_long]
    if traits.asks:
        groups.append(flags.question)
    if traits.connects:
        groups.append(flags.connection)
    return groups


def command_name(ctx: Context) -> str:
    """``topic.list``: the name of a command in envelopes, whatever alias was typed."""
    names = []
    current: Context | None = ctx
    while current is not None and current.parent is not None:
        names.append(current.command.name or "")
        current = current.parent
    return ".".join(reversed(names))


def unknown_command(ctx: Context, word: str, known: list[str]) -> UsageError:
    """The error for a word that is no command, with the nearest ones that are."""
    near = get_close_matches(word, known, n=2)
    path = ctx.command_path
    return UsageError(
        f"{path} has no command {word!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""), ctx=ctx
    )


def arguments(command: Command) -> list[TyperArgument]:
    """A command's arguments, in order."""
    return [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]


def usage_of(argument: TyperArgument) -> str:
    """``NAME``, ``[NAME]``, ``NAME...`` or ``[NAME...]``."""
    text = argument_name(argument) + ("..." if argument.nargs != 1 else "")
    return text if argument.required else f"[{text}]"


def argument_name(argument: TyperArgument) -> str:
    """The word that stands for an argument in usage lines."""
    assert argument.metavar is not None  # set when the command was made
    return argument.metavar


def flag_words(option: Any) -> str:
    """``-p, --partitions N``: an option's words, short ones first, and what it takes."""
    words = sorted([*option.opts, *option.secondary_opts], key=lambda word: word.startswith("--"))
    takes = "" if option.is_flag or option.count else f" {option.metavar or option.name.upper().replace('_', '-')}"
    return ", ".join(words) + takes


def help_record(parameter: Any, ctx: Context | None) -> tuple[str, str] | None:
    """What stands left and right in a help text; None for hidden ones."""
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
        notes.append("may be repeated")
    default = parameter.default
    if parameter.show_default and default not in (None, [], (), False) and not callable(default):
        notes.append(f"default: {getattr(default, 'value', default)}")
    text = parameter.help or ""
    return left, f"{text} [{'; '.join(notes)}]" if notes else text
