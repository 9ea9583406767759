"""Find a running local stack, so that `rtolap sql` in its folder needs no settings."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from rtolap.base.settings import Settings
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stack.state import load_state
from rtolap.stack.versions import adapt, refuse_other_version


def adopt_running_stack(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take the settings of the stack in `.stack/` of this folder or one above it.

    Only when not a single setting is given in the environment: settings of two clusters never mix. Raises
    Refused for a stack of another version: what is missing there must not silently become a default.
    """
    if any(f"RTOLAP_{name.upper()}" in environ for name in Settings.model_fields):
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
