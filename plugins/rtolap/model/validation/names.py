"""The check of a name."""

from __future__ import annotations

import re

from rtolap.model.problems import Key, Problem

NAME_LENGTH_MAX = 64
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def name_problems(name: str, key: Key) -> list[Problem]:
    """Return the problems of a name. Names stand in SQL, in znodes and in paths, so they are plain."""
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        expected = f"lower-case letters, digits and _, not a digit first, at most {NAME_LENGTH_MAX}"
        return [Problem(key, "not a name", expected=expected, found=repr(name))]
    if "__" in name:
        return [Problem(key, "a reserved name", expected="no __ in it", found=repr(name))]
    return []
