"""Text files that a person may have saved: some editors and spreadsheets put a byte order mark before the text."""

from __future__ import annotations

import io
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path


def read_text(path: str | Path, errors: str = "strict") -> str:
    """The text of a file. OSError, UnicodeDecodeError."""
    return decoded(Path(path).read_bytes(), errors)


def decoded(content: bytes, errors: str = "strict") -> str:
    """UTF-8 with or without the mark, or UTF-16 with it; every end of a line is a newline. UnicodeDecodeError."""
    encoding = "utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    return io.StringIO(content.decode(encoding, errors), newline=None).getvalue()
