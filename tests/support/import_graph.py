"""Who imports whom in the code of this project."""

from __future__ import annotations

import functools

import grimp


@functools.cache
def import_graph(*roots: str) -> grimp.ImportGraph:
    """Packages of others are in it as one module each. It is made once per process: not to be changed."""
    return grimp.build_graph(*roots, include_external_packages=True)
