"""Warnings of what a statement's result does not show by itself, returned beside it by every endpoint."""

from __future__ import annotations

from typing import Literal

import msgspec

WarningCode = Literal[
    "time_aligned",  # a condition on the event time counts by whole kept units
    "clock_in_utc",  # NOW() beside the local time of a zone
    "approximate",  # COUNT(DISTINCT …) out of sketches
    "records_refused",  # records of the topic that are in no count
    "not_enabled",  # a cube that has never read its topic
    "not_consuming",  # a cube that is disabled or paused: nothing newer arrives
    "events_lost",  # events of the time that is asked for are lost for good
    "without_effect",  # what a definition asks for and does not get
]


class QueryWarning(msgspec.Struct, frozen=True, order=True):
    """`level` as MySQL's: a Note says how a number is meant, a Warning that it may not be as requested."""

    code: WarningCode
    level: Literal["Note", "Warning"]
    message: str
