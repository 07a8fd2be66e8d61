"""What a command notes of offsets that it has changed: the lines for a person, and the file that undoes it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.render import Format

if TYPE_CHECKING:
    from klog.admin.rewind import Plan


def change_notes(invocation: Invocation, *lines: str) -> tuple[str, ...]:
    """What a report notes of a change. Formats for scripts leave notes out, and no column has who was fenced and how to
    undo it: then the lines go to stderr here.
    """
    if not invocation.output.is_structured and invocation.output is not Format.TSV:
        return lines
    for line in lines:
        invocation.say(line)
    return ()


def write_undo(invocation: Invocation, plan: Plan) -> str:
    """Write the undo file; the line that shows how to use it."""
    from klog.admin import rewind as rewinding

    path = rewinding.undo_path(klog_home(), plan.group)
    rewinding.write_undo(path, plan)
    group, undo = shlex.quote(plan.group), f"--undo {shlex.quote(str(path))}"
    # A name that begins as a flag does stands behind all flags.
    arguments = f"{undo} -- {group}" if plan.group.startswith("-") else f"{group} {undo}"
    return f"to undo: klog group rewind {arguments}"
