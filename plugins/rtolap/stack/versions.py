"""A `stack.json` that another version of rtolap has written: what of it can be used, and what cannot."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import Refused
from rtolap.stack.layout import StackLayout
from rtolap.stack.names import COMPONENT_NAMES, DEFAULT_PORTS
from rtolap.stack.state import StackState


def adapt(state: StackState) -> tuple[StackState, tuple[str, ...]]:
    """The state in this version's names, and what differed, in words; nothing of its own state does.

    Ports and parts that this version does not know are left out; a port that is not there gets its default.
    That is enough to stop such a stack (its other processes carry its mark) and to start over, but not to
    tell how its running parts are reached.
    """
    ports = {name: state.ports.get(name, default) for name, default in DEFAULT_PORTS.items()}
    components = tuple(name for name in COMPONENT_NAMES if name in state.components)
    differences = (
        *(f"no port {name}" for name in DEFAULT_PORTS if name not in state.ports),
        *(f"port {name}" for name in state.ports if name not in DEFAULT_PORTS),
        *(f"component {name}" for name in state.components if name not in COMPONENT_NAMES),
    )
    return msgspec.structs.replace(state, ports=ports, components=components), differences


def refuse_other_version(layout: StackLayout, differences: tuple[str, ...]) -> Refused:
    """For what cannot be done with a stack whose ports and parts this version does not know."""
    return Refused(
        f"the stack in {layout.root} was started by another version of rtolap",
        expected=f"ports {', '.join(DEFAULT_PORTS)}",
        found=", ".join(differences),
        action="stop it: rtolap stack down; then start it again",
    )
