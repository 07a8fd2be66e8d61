"""``klog completion``: the script that makes a shell complete klog's commands."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.cli.root import COMPLETE_VARIABLE


@top_command("completion", connects=False)
def completion(
    invocation: Invocation,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell.

    Load it with `source <(klog completion bash)`, or put it where the shell looks for such files.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="klog", complete_var=COMPLETE_VARIABLE, shell=shell)
    sys.stdout.write(script + "\n")
