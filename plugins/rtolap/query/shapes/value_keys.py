"""Keys of values that a plan depends on: two values have one key only where a plan reads them alike.

Python takes `Decimal("1.0")` for equal to `Decimal("1.00")`, 0.0 to -0.0, and two moments of other zones for
equal. SQL that makes a text of a value, or compares a column with its digits, does not.
"""

from __future__ import annotations

from collections.abc import Hashable

_BY_EQUALITY = (str, bytes, int, type(None))  # of one type they are equal only where they look the same


def value_key(value: object) -> Hashable:
    """Return the key of a value; None of one that cannot be told from others."""
    if isinstance(value, _BY_EQUALITY):
        return (type(value), value)
    return (type(value), value, repr(value)) if isinstance(value, Hashable) else None
