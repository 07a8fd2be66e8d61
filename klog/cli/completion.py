"""``klog completion``: the script that makes a shell complete klog's commands."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Literal

from klog.cli.command import top_command
from klog.cli.flags import argument
from klog.cli.invocation import Invocation
from klog.cli.root import COMPLETE_VARIABLE, root


@top_command("completion", connects=False)
def completion(
    invocation: Invocation, shell: Literal["bash", "zsh", "fish"] = argument("SHELL", "bash, zsh or fish.", ...)
) -> None:
    """Print the completion script of a shell.

    Load it with `source <(klog completion bash)`, or save it where the shell looks for completion scripts.
    """
    from typer.completion import shell_complete

    with redirect_stdout(StringIO()) as script:
        shell_complete(root(), {}, "klog", COMPLETE_VARIABLE, f"source_{shell}")
    # Stripped: zsh reads `#compdef` in the first line only.
    sys.stdout.write(script.getvalue().strip() + "\n")
