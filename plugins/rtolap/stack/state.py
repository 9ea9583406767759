"""The state of a stack that is kept between commands: `stack.json`."""

from __future__ import annotations

import msgspec

from rtolap.base.files import write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.stack.layout import StackLayout


class StackState(msgspec.Struct, frozen=True):
    """ports: by name; components: those that were started; settings: the `RTOLAP_*` variables."""

    ports: dict[str, int]
    components: tuple[str, ...]
    settings: dict[str, str]


def load_state(layout: StackLayout) -> StackState | None:
    try:
        encoded = layout.state_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    damage, action = f"{layout.state_file} cannot be read", "remove it when no stack runs"
    return decode_own(encoded, StackState, damage, action=action)


def save_state(layout: StackLayout, state: StackState) -> None:
    write_atomic(layout.state_file, msgspec.json.format(msgspec.json.encode(state), indent=2), mode=0o600)
