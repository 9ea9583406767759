"""Files in which the operator of a host declares the servers that services reach, and their secrets. A file
that others may write could send a password elsewhere, and a file that others may read is no secret. Both are
refused by name, with the command that mends it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from rtolap.base.errors import DefinitionError

_BYTES_MAX = 4 << 20
_OTHERS = 0o077
_OTHERS_WRITE = 0o022


def read_operator_yaml(path: Path, what: str) -> Any:
    """Return what the YAML says, as plain values. `what` names it in errors.

    Raises DefinitionError where it cannot be read, others may write to it, or it is no YAML.
    """
    text, mode = _read(path, what)
    if mode & _OTHERS_WRITE:
        raise DefinitionError(
            f"others may write to {path}", expected="a file of its owner's", action=f"chmod go-w {path}"
        )
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        at = getattr(error, "problem_mark", None)
        line = "" if at is None else f", line {at.line + 1}"
        raise DefinitionError(f"{path} is no YAML{line}") from None


def read_secret(path: Path, what: str) -> str:
    """Return the secret without the end of its line.

    Raises DefinitionError, never with the secret: others than the owner may read the file, it cannot be read,
    or is empty.
    """
    content, mode = _read(path, what)
    _check_mode(path, what, mode)
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DefinitionError(f"{what} cannot be read", expected=f"a text file {path}") from None
    if not text:
        raise DefinitionError(f"{what} is empty", found=str(path))
    return text


def check_readable(path: Path, what: str) -> None:
    """Raise DefinitionError where the file cannot be read, or does not exist."""
    _read(path, what)


def check_private(path: Path, what: str) -> None:
    """Raise DefinitionError where anybody but the owner may read the file, or where it does not exist."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise _unreadable(path, what, error) from error
    _check_mode(path, what, mode)


def _read(path: Path, what: str) -> tuple[bytes, int]:
    """Return the content, and the mode of just the file that was read."""
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise _unreadable(path, what, error) from error


def _unreadable(path: Path, what: str, error: OSError) -> DefinitionError:
    return DefinitionError(f"{what} cannot be read", expected=f"a readable file {path}", found=error.strerror)


def _check_mode(path: Path, what: str, mode: int) -> None:
    if mode & _OTHERS:
        raise DefinitionError(
            f"{what} is open to others",
            expected="a file that its owner alone may read, mode 0400 or 0600",
            found=f"{path} with mode {stat.S_IMODE(mode):04o}",
            action=f"chmod go-rwx {path}",
        )
