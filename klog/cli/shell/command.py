"""``klog shell``: at a terminal the prompt, otherwise a script."""

from __future__ import annotations

import sys
from pathlib import Path

from klog.cli import interrupt
from klog.cli.command import top_command
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.errors import UsageError
from klog.render.visible import is_terminal


@top_command("shell")
def shell(
    invocation: Invocation,
    commands: list[str] | None = flag("-e --execute COMMAND", "Run this command line and exit."),
    file: Path | None = flag("-f --file FILE", "Run the lines of a file and exit; - for stdin."),
    keep_going: bool = flag("-k --keep-going", "Continue a script after a command that fails."),
) -> int:
    """Run commands interactively on one cluster.

    Completes while typing; `\\h` lists the shell's own commands. The history leaves out passwords, and lines that begin
    with a space. If stdin is not a terminal, its lines are run as a script. A script ends at the first command that
    fails, with its exit code.
    """
    from klog.cli.shell import settings
    from klog.cli.shell.shell import Shell, script_lines

    if commands and file is not None:
        raise UsageError("-e and -f exclude each other")
    chosen = settings.load(klog_home() / settings.FILE)
    running = Shell(invocation.shared)
    running.keep_going = keep_going
    try:
        with interrupt.in_shell():
            if commands:
                return running.run_lines(commands)
            if file is not None and str(file) != "-":
                with file.open(encoding="utf-8-sig") as stream:
                    return running.run_lines(script_lines(stream))
            if file is not None or not is_terminal(sys.stdin):
                running.is_on_stdin = True
                return running.run_lines(script_lines(sys.stdin))
            from klog.cli.shell.prompt import Prompt

            running.screen.pager = chosen.pager  # a script does not wait for a person
            return Prompt(running, chosen, klog_home() / "shell_history").run()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file or 'stdin'}: not UTF-8 text: {error.reason}, byte {error.start}") from None
    finally:
        running.cluster.close()
