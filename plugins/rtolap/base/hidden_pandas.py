"""Pandas is not there for a process that never makes a data frame, even where it is installed.

pyarrow imports it with the first value that it makes, only to ask whether that is a series: a quarter of what
a process of ours takes to start, and some 35 MB that it never uses. A program hides it; a library must not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this program goes without pandas", name=name)


def hide_pandas() -> None:
    """Hide pandas from libraries that use it where it is there. Call it before pyarrow makes its first
    value."""
    if not any(isinstance(finder, _WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutPandas())


def show_pandas() -> None:
    """Stop hiding pandas, for a library that cannot be imported without it, as Spark Connect's client."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WithoutPandas)]
