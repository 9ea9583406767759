"""Functions of users that a subscription names: filters and payload extractors, from installed distributions.

[project.entry-points."rtolap.sep.filters"]              EditBatch → a boolean for each event
[project.entry-points."rtolap.sep.payload_extractors"]   EditBatch → bytes or null for each event
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

import pyarrow as pa

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.filters import EventMaskFilter

FILTERS: Final = "rtolap.sep.filters"
PAYLOAD_EXTRACTORS: Final = "rtolap.sep.payload_extractors"


class PayloadExtractor:
    """Calls a user's function for the payload of each event, and holds it to what it promises."""

    def __init__(self, name: str, extract: Callable[[EditBatch], pa.BinaryArray]) -> None:
        self._name, self._extract = name, extract

    def __call__(self, batch: EditBatch) -> pa.BinaryArray:
        """Return the payload of each event. Raises DefinitionError where the function returns anything but
        bytes or null for an event."""
        answer = self._extract(batch)
        column = answer if isinstance(answer, pa.Array) else pa.array(answer)
        if len(column) != batch.num_events or column.type not in (pa.binary(), pa.null()):
            raise DefinitionError(
                f"the payload extractor {self._name} does not answer as one",
                expected=f"{batch.num_events} values of bytes or null, one for each event",
                found=f"{len(column)} of {column.type}",
            )
        return column.cast(pa.binary())


def load_filter(name: str) -> EventMaskFilter:
    """Load a filter. Raises NotFound where no installed distribution declares it."""
    return EventMaskFilter(name, load_function(FILTERS, name))


def load_payload_extractor(name: str) -> PayloadExtractor:
    """Load a payload extractor. Raises NotFound where no installed distribution declares it."""
    return PayloadExtractor(name, load_function(PAYLOAD_EXTRACTORS, name))


def load_function(group: str, name: str) -> Callable[..., object]:
    """Load a function. Raises NotFound where nobody declares `name` in the group, DefinitionError where it is
    no function."""
    declared = entry_points(group=group)
    named = [entry for entry in declared if entry.name == name]
    if not named:
        raise NotFound(
            f"no entry point {name} in the group {group}",
            expected=f"one of {sorted(entry.name for entry in declared) or 'none'}",
            action="install the distribution that declares it beside rtolap",
        )
    loaded: object = named[0].load()
    if not callable(loaded):
        raise DefinitionError(
            f"the entry point {name} in the group {group} is no function", found=named[0].value
        )
    return loaded
