"""Batches: segments whose events another source than the topic says."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rtolap.protocols.rest.messages import Definition, Message


class BatchRequest(Message):
    """A batch to be planned.

    Attributes:
        batch: its id, new for each batch. The same request again gives the same plan.
        start_ms: of the range of event time, where a segment begins.
        end_ms: of the range, where a segment ends.
        source: `model.batch.BatchSource`.
    """

    batch: Annotated[str, Field(min_length=1, max_length=64)]
    start_ms: int
    end_ms: int
    source: Definition


class BatchPlanMessage(Message):
    """A planned batch.

    Attributes:
        spec: the JSON of `model.batch.BatchSpec`, which `stage_batch.py` reads.
        replaced: segments with events in history, which the batch replaces.
        fresh: segments without a record; those that the batch has rows of get one.
    """

    cube: str
    batch: str
    spec: Definition
    replaced: int
    fresh: int


class BatchProgress(Message):
    """The state of a staged batch.

    Attributes:
        folder: of its parts, in the object store.
        segments: all that it has, by start.
        left: those that are not handed over yet: apply it again.
        building: those that wait for their build.
        failed: of these, those whose newest build has failed, with the error.
        ready: those whose READY version began with this batch.
        events: of all of them.
    """

    cube: str
    batch: str
    folder: str
    segments: tuple[str, ...] = ()
    left: int = 0
    building: tuple[str, ...] = ()
    failed: dict[str, str] = Field(default_factory=dict)
    ready: int = 0
    events: int = 0
