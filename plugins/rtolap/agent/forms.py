"""Forms of the values that options may have: names, numbers, sizes, masters of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable

from rtolap.agent.host import Host

Fits = Callable[[str, Host], bool]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_SIZE = re.compile(r"[0-9]{1,9}[kKmMgGtT]?[bB]?")
_LOCAL = re.compile(r"local(\[(\*|[0-9]{1,4})(,[0-9]{1,4})?\])?")


def matches(pattern: re.Pattern[str]) -> Fits:
    """Return the check that a value is of this pattern as a whole."""
    return lambda value, host: pattern.fullmatch(value) is not None


def is_master(value: str, host: Host) -> bool:
    """Return True for the host's own master, and for local ones."""
    return value == host.spark_master or _LOCAL.fullmatch(value) is not None


is_name, is_number, is_size = matches(NAME), matches(NUMBER), matches(_SIZE)
