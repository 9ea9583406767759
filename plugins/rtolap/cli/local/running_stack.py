"""Find a running local stack, so that `rtolap sql` in its folder needs no settings."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from rtolap.base.settings import Settings
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stack.state import adapt, load_state, refuse_other_version


def no_stack_note(environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Return a note on where a stack was looked for, if none was found; None where settings are given, or
    were adopted.
    """
    if _is_set(environ):
        return None
    return (
        f"no stack was found: {DEFAULT_DIR}/stack.json was looked for in {Path.cwd()} "
        "and the folders above it; go to its folder, start one by `rtolap stack up`, or set RTOLAP_ variables"
    )


def _is_set(environ: MutableMapping[str, str]) -> bool:
    return any(f"RTOLAP_{name.upper()}" in environ for name in Settings.model_fields)


def adopt_running_stack(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take the settings of the stack in `.stack/` of this folder or one above it.

    Only when not a single setting is given in the environment: settings of two clusters never mix. Raises
    Refused for a stack of another version: what is missing there must not silently become a default.
    """
    if _is_set(environ):
        return
    here = Path.cwd()
    for folder in (here, *here.parents):
        layout = StackLayout(folder / DEFAULT_DIR)
        state = load_state(layout)
        if state is None:
            continue
        _, differences = adapt(state)
        if differences:
            raise refuse_other_version(layout, differences)
        environ.update(state.settings)
        return
