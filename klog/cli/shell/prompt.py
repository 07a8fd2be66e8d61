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
from klog.cli.shell.history import QuietHistory
from klog.cli.shell.live import Live
from klog.cli.shell.settings import ShellSettings
from klog.cli.shell.shell import Shell
from klog.cli.shell.syntax import open_end
from klog.render.visible import visible

LAG_EVERY = 3
"""The lag of groups, which costs the brokers more, is read at every third refresh."""
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
        fresh_s = {"facts": settings.refresh_s, "lag": LAG_EVERY * settings.refresh_s}
        self._live = Live(shell.cluster.look, fresh_s=fresh_s, changed=self._redraw)
        lines = QuietHistory(str(history))
        shell.history = lines.get_strings
        shell.switched = self._live.forget
        self._completer = KlogCompleter(shell.cluster, self._live, history=lines.get_strings, using=lambda: shell.using)
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            history=lines,
            completer=ThreadedCompleter(self._completer),
            complete_while_typing=settings.complete,
            auto_suggest=AutoSuggestFromHistory() if settings.suggest else None,
            bottom_toolbar=self.toolbar if settings.toolbar else None,
            multiline=Condition(lambda: bool(open_end(self._session.default_buffer.text))),
            prompt_continuation="... ",
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".klog",
            key_bindings=self._keys(),
            vi_mode=settings.editing == "vi",
            style=STYLE,
            refresh_interval=settings.refresh_s,
            input=terminal_input,
            output=terminal_output,
        )

    def run(self) -> int:
        """Prompt until the end of input or ``exit``; the exit code of the last command."""
        self._live.now("topics")
        while True:
            try:
                if not self._turn():
                    break
            except KeyboardInterrupt:
                continue  # Ctrl-C drops the line, as every shell does
            except EOFError:
                break
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
            self._live.forget_age()
        return True

    def toolbar(self) -> StyleAndTextTuples:
        """Two lines: the usage of what is typed, and the cluster."""
        shell = self._shell
        typed = usage(self._session.default_buffer.document.text_before_cursor)
        facts, lag = self._live.now("facts") or None, self._live.now("lag") or None
        status = bar.toolbar(shell.place, facts, shell.last, shell.trouble, lag)
        return [("class:usage", f" {visible(typed)}\n"), ("", status)]

    def _prompt(self) -> StyleAndTextTuples:
        using = self._shell.using.name if self._shell.using is not None else ""
        return bar.prompt(self._shell.place, self._live.now("facts") or None, using=using)

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

    def _redraw(self) -> None:
        """From a thread that has refreshed something; does nothing while a command runs."""
        self._session.app.invalidate()
