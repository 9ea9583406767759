"""The whole way: bytes → batches."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.bodies.batches import DecodedBatch
from rtolap.bodies.options import LoadOptions
from rtolap.bodies.settings import BodySettings
from rtolap.model.stored_schema import StoredSchema


def decode_body(
    chunks: Iterator[bytes],
    options: LoadOptions,
    schema: StoredSchema,
    settings: BodySettings = BodySettings(),
) -> Iterator[DecodedBatch]:
    """Blocks on `chunks`; what it raises passes through. Memory is bounded by `settings`.

    DefinitionError: options and table do not go together (raised before the first chunk is asked for).
    Corrupted: the body is not what its headers say. Refused: it is larger than it may be. Nothing of a body
    that raises may be loaded.
    """
    raise NotImplementedError
