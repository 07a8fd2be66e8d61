"""The loop of the shell at a terminal: read, run, show what the cluster is like meanwhile."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, ThreadedCompleter, get_common_complete_suffix
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from klog.cli.shell import bar
from klog.cli.shell.completer import KlogCompleter, usage
from klog.cli.shell.facts import LiveFacts
from klog.cli.shell.history import QuietHistory
from klog.cli.shell.live_names import LiveNames
from klog.cli.shell.settings import ShellSettings
from klog.cli.shell.shell import Shell
from klog.cli.shell.syntax import open_end
from klog.render.visible import visible

STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "usage": "italic"})


class Prompt:
    """Asks for lines and has a `Shell` run them. One thread, but for what reads names and facts in the background."""

    def __init__(
        self,
        shell: Shell,
        settings: ShellSettings,
        history: Path,
        *,
        terminal_input: Input | None = None,
        terminal_output: Output | None = None,
    ) -> None:
        self._shell = shell
        self._names = LiveNames(shell.cluster.names)
        self._facts = LiveFacts(shell.cluster.facts, self._redraw, settings.refresh_s)
        lines = QuietHistory(str(history))
        shell.history = lines.get_strings
        shell.switched = self._switched
        self._completer = KlogCompleter(
            shell.cluster, self._names, history=lines.get_strings, using=lambda: shell.using
        )
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            history=lines,
            completer=ThreadedCompleter(self._completer),
            complete_while_typing=settings.complete,
            auto_suggest=AutoSuggestFromHistory() if settings.suggest else None,
            bottom_toolbar=self.toolbar if settings.toolbar else None,
            multiline=Condition(self._is_open),
            prompt_continuation="... ",
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".klog",
            key_bindings=self._keys(),
            vi_mode=settings.editing == "vi",
            style=STYLE,
            input=terminal_input,
            output=terminal_output,
        )

    def run(self) -> int:
        """Prompt until the end of input or ``exit``; the exit code of the last command."""
        self._names.now("topics")
        self._facts.start()
        try:
            while True:
                try:
                    if not self._turn():
                        break
                except KeyboardInterrupt:
                    continue  # Ctrl-C drops the line, as every shell does
                except EOFError:
                    break
        finally:
            self._facts.stop()
        return self._shell.status

    def _turn(self) -> bool:
        """One line; False where it says to leave."""
        line = self._session.prompt()
        if not self._shell.run_line(line):
            return False
        if self._shell.was_interrupted:
            self._session.output.write("\n")  # behind the ^C that the terminal shows
            self._session.output.flush()
        if line.strip():
            self._names.forget_age()
            self._facts.refresh()
        return True

    def toolbar(self) -> StyleAndTextTuples:
        """Two lines: the usage of what is typed, and the cluster."""
        shell = self._shell
        typed = usage(self._session.default_buffer.document.text_before_cursor)
        status = bar.toolbar(shell.place, self._facts.now(), shell.last, shell.trouble)
        return [("class:usage", f" {visible(typed)}\n"), ("", status)]

    def _prompt(self) -> StyleAndTextTuples:
        using = self._shell.using.name if self._shell.using is not None else ""
        return bar.prompt(self._shell.place, self._facts.now(), using=using)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("tab")
        def _complete(event: KeyPressEvent) -> None:
            """Completes at once where the names are known, for those who type on; otherwise opens the menu."""
            buffer = event.current_buffer
            if buffer.complete_state is not None:
                buffer.complete_next()
                return
            asked = CompleteEvent(completion_requested=True)
            found = list(self._completer.get_completions(buffer.document, asked))
            suffix = get_common_complete_suffix(buffer.document, found)
            if suffix:
                buffer.insert_text(suffix)
            else:
                buffer.start_completion(insert_common_part=True)

        return keys

    def _is_open(self) -> bool:
        return bool(open_end(self._session.default_buffer.text))

    def _redraw(self) -> None:
        """From the thread of the facts; does nothing while a command runs."""
        self._session.app.invalidate()

    def _switched(self) -> None:
        self._names.forget()
        self._facts.refresh(other_cluster=True)
