"""The path of the checkout: for tests that start its processes and read its files."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PLUGINS = PROJECT / "plugins"

PYTHONPATH = os.pathsep.join((str(PROJECT), str(PLUGINS)))
"""For processes that run modules of `tests.support`, from whatever folder."""
