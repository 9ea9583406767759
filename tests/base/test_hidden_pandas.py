"""A program that hides pandas makes values of pyarrow without it."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from rtolap.base.hidden_pandas import hide_pandas
hide_pandas()
hide_pandas()
import pyarrow as pa
import pyarrow.dataset
print(pa.array([1, None]).to_pylist(), "pandas" in sys.modules)
try:
    import pandas
except ModuleNotFoundError as error:
    print(error.name)
"""


def test_pyarrow_goes_without_it_and_whoever_imports_it_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["[1, None] False", "pandas"], done.stderr
