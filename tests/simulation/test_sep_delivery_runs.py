"""Seeded runs of change capture; a failing seed replays with `python -m tests.support.sep.delivery_runs`."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.delivered_edits import DeliveredEdits, Split
from rtolap.sep.delivery.delivery import _GroupRun
from rtolap.sep.delivery.edit_records import RegionEdits, bitmap_of, ids_of, packed, unpacked
from rtolap.sep.delivery.journal import Journal, Record
from rtolap.sep.events.edit_batch import EditBatch

from tests.support.seeds import notices, so_many
from tests.support.sep.delivery_runs import FunctionWorld, run_seed


@pytest.mark.seeded
def test_every_event_is_delivered_once_and_those_of_a_row_in_order() -> None:
    happened: Counter[str] = Counter()
    for seed in range(so_many(120, 300)):
        try:
            happened += run_seed(seed)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: python -m tests.support.sep.delivery_runs --seed {seed}"
            ) from error
    # the runs meet what they are about
    for what in (
        "late",
        "late by another region",
        "take-over",
        "shut out",
        "killed: send",
        "killed: sent",
        "killed: begun",
        "away: send",
    ):
        assert happened[what] > 10, happened
    assert happened["answer lost: sent"] > 10


@pytest.mark.seeded
def test_a_function_gets_every_event_and_again_only_what_was_under_way() -> None:
    happened: Counter[str] = Counter()
    for seed in range(so_many(40)):
        try:
            happened += run_seed(seed, make_world=FunctionWorld)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, make_world=FunctionWorld") from error
    assert happened["function failed"] > 10
    assert happened["killed: send"] > 5


class Forgetful(DeliveredEdits):
    def split(self, batch: EditBatch) -> Split:
        everything = np.ones(batch.num_events, bool)
        return Split(everything, ~everything, super().split(batch).late)


class ClosesGaps(DeliveredEdits):
    """A call covers all ids between its first and its last, as if a region's edits came from one server."""

    def remember(self, records: Sequence[RegionEdits]) -> None:
        closed = []
        for record in records:
            ids = ids_of(unpacked(record.sequence_ids))
            if len(ids):
                whole = packed(bitmap_of(np.arange(ids[0], ids[-1] + 1)))
                record = RegionEdits(record.region, whole, record.newest_write_ms, record.partial)
            closed.append(record)
        super().remember(closed)


class WritesApart(Journal):
    """The note follows the events, in a transaction of its own."""

    def write(self, records: Sequence[Record], columns: Sequence[OutColumns] = ()) -> None:
        assert self._producer is not None
        self._producer.send(columns, 1)
        super().write(records)


class LooksAtOneRegion(DeliveredEdits):
    """Late is what is below its own region's highest id, whatever its daughters have delivered."""

    def remember(self, records: Sequence[RegionEdits]) -> None:
        super().remember([msgspec.structs.replace(record, last_row=b"") for record in records])


class ShutsNobodyOut(Journal):
    def __init__(self, *args, open_producer, **named) -> None:  # type: ignore[no-untyped-def]
        super().__init__(*args, open_producer=lambda name: open_producer(f"{name}-{id(self)}"), **named)


@pytest.mark.parametrize(
    ("memory", "journal", "first_seed", "said"),
    [
        (Forgetful, Journal, 0, "twice"),
        (ClosesGaps, Journal, 4, "lost"),
        (LooksAtOneRegion, Journal, 3, "out of order"),
        (DeliveredEdits, WritesApart, 0, "twice"),
        (DeliveredEdits, ShutsNobodyOut, 9, "twice"),
    ],
)
def test_the_runs_notice_a_delivery_that_is_wrong(
    memory: type[DeliveredEdits], journal: type[Journal], first_seed: int, said: str
) -> None:
    assert notices(
        lambda seed: run_seed(seed, make_memory=memory, make_journal=journal), first_seed, said, seeds=60
    )


def test_the_runs_notice_calls_that_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _GroupRun, "due", lambda self: (np.flatnonzero(self.left), self.batch.filter(self.left))
    )
    assert notices(run_seed, 28, "out of order", seeds=60)
