"""The findings of a restore, line by line: printed by `--plan`, and before anything is written."""

from __future__ import annotations

from typing import Literal

import msgspec

# taken: what is newer than the backup is taken from where it stands now.
# changed: a record is restored otherwise than it was, and nothing is lost by that.
# left: a record is not restored, and somebody has to decide about it.
# lacking: statements about it are refused, or the cube waits, until it is mended.
Outcome = Literal["taken", "changed", "left", "lacking"]


class Finding(msgspec.Struct, frozen=True):
    """A line of the plan.

    Attributes:
        subject: a cube, a segment, a topic, a fleet.
        action: what to do about it; "" for nothing.
    """

    outcome: Outcome
    subject: str
    message: str
    action: str = ""
