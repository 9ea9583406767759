"""Passwords stand in files of their own, never in a command or a variable."""

from __future__ import annotations

from pathlib import Path

from rtolap.base.files import read_provided


def read_password(path: Path, of: str) -> str:
    """Without the end of its line. Raises DefinitionError, which says whose password (`of`) it is."""
    return read_provided(path, f"the password of {of}").rstrip("\r\n")
