"""Passwords stand in files of their own, never in a command or a variable."""

from __future__ import annotations

from pathlib import Path

from rtolap.base.errors import DefinitionError


def read_password(path: Path, of: str) -> str:
    """Without the end of its line. Raises DefinitionError, which says whose password (`of`) it is."""
    try:
        return path.read_text().rstrip("\r\n")
    except OSError as error:
        raise DefinitionError(
            f"the password of {of} cannot be read",
            expected=f"a readable file {path}",
            found=error.strerror,
        ) from error
