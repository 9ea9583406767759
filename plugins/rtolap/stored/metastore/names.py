"""Names as every server keeps them alike."""

from __future__ import annotations

from rtolap.base.errors import DefinitionError
from rtolap.stored.metastore.schema import NAME_CHARS_MAX


def checked_name(field: str, name: str) -> str:
    """The name. Raises DefinitionError for one that servers would treat differently: MySQL ignores blanks at
    the end when it compares, and SQLite keeps any length."""
    if not name or name != name.strip() or len(name) > NAME_CHARS_MAX or "\0" in name:
        raise DefinitionError(
            f"the {field} cannot be kept",
            expected=f"1 to {NAME_CHARS_MAX} characters, no blank at either end",
            found=repr(name[: NAME_CHARS_MAX + 10]),
        )
    return name
