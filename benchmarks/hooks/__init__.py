"""Has services of the product run code of a benchmark before their own, any number of such hooks at a time.

Python imports one module of the name `sitecustomize` at its start, the first that it finds. This folder has
it for all benchmarks: it imports each hook's module and calls its `begin`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.hooks.sitecustomize import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


class Hook(NamedTuple):
    """A module whose `begin(argument)` runs at the start of services.

    Attributes:
        services: words of command lines, as `receiver`; other processes do not import the module.
    """

    module: str
    argument: str
    services: tuple[str, ...]


def environment(hooks: Iterable[Hook]) -> dict[str, str]:
    """Return the environment that has services run the hooks, in this order. Empty where there are none.

    Paths that are set already stay, so that a service is the same program with a hook as without one.
    """
    asked = list(hooks)
    if not asked:
        return {}
    folder = str(Path(__file__).parent)
    paths = [folder, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: json.dumps(asked), "PYTHONPATH": os.pathsep.join(paths)}
