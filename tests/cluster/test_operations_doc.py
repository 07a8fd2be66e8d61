"""Every command of docs/operations.md and of the tutorial does what the document says, on a cluster of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.doc_runner import ROOT, Shell, commands, free_ports, normalised

DOCUMENT = ROOT / "docs" / "operations.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
ELEVEN = 11
"""Chapters: the procedures that an operator of the system is given."""


@pytest.mark.long("a document that is walked")
@pytest.mark.timeout(420)
@pytest.mark.parametrize("document", [DOCUMENT, TUTORIAL], ids=lambda document: str(document.name))
def test_the_document(tmp_path: Path, document: Path) -> None:
    shell = Shell(tmp_path, free_ports())
    wrong = []
    try:
        for command in commands(document.read_text("utf-8")):
            printed, code = shell.run(command)
            where = f"docs/{document.name}:{command.line + 1}: $ {command.text}"
            assert code == 0, f"{where}\nexit {code}\n{printed}"
            expected = normalised("\n".join(command.expected))
            if normalised(printed) != expected:
                wrong.append(f"{where}\nexpected: {expected}\nprinted:  {normalised(printed)}")
    finally:
        shell.end()
    assert not wrong, "\n\n".join(wrong)


def test_it_has_the_eleven_procedures() -> None:
    chapters = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("## ")]
    assert [chapter.split()[1] for chapter in chapters[:ELEVEN]] == [f"{number}." for number in range(1, ELEVEN + 1)]
