"""Many terms joined by an operator of two: as flat a tree as there can be.

Engines walk through a condition on the stack of a thread, or limit how deep its message may be. A chain of
`a AND b AND …` is as deep as it is long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def flat_tree(join: Callable[[T, T], T], terms: Sequence[T], *, empty: T) -> T:
    """Return the terms joined in their order; `empty` where there are none."""
    if not terms:
        return empty
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return join(flat_tree(join, terms[:middle], empty=empty), flat_tree(join, terms[middle:], empty=empty))
