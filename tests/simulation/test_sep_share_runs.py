"""Seeded runs of several consumers of a subscription; a failing seed replays with
`python -m tests.support.sep.share_runs`."""

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from rtolap.sep.delivery.journal import Journal, Share
from rtolap.sep.events.edit_batch import EditBatch

from tests.support.seeds import notices, so_many
from tests.support.sep.share_runs import SharedFunctionWorld, ShareWorld, run_seed
from tests.support.twins.kafka_producer import MemoryAdmin


@pytest.mark.seeded
def test_several_consumers_deliver_every_event_once_and_those_of_a_row_in_order() -> None:
    happened: Counter[str] = Counter()
    for seed in range(so_many(40, 300)):
        try:
            happened += run_seed(seed)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: python -m tests.support.sep.share_runs --seed {seed}"
            ) from error
    # the runs meet what they are about
    for what in (
        "divided",
        "late by another region",
        "joined",
        "killed",
        "paused",
        "woken",
        "shut out",
        "drained: UNPLANNED",
        "killed: sent",
        "killed: begun",
        "away: send",
    ):
        assert happened[what] > 10, (what, happened)


@pytest.mark.seeded
def test_functions_of_several_consumers_get_again_only_what_was_under_way() -> None:
    happened: Counter[str] = Counter()
    for seed in range(so_many(20, 200)):
        try:
            happened += run_seed(seed, make_world=SharedFunctionWorld)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert happened["function failed"] > 10
    assert happened["woken"] > 5


def by_region(batch: EditBatch, count: int) -> list[tuple[int, EditBatch]]:
    """Divide by the regions' names: daughters go elsewhere than their parents."""
    names = batch.events["region"].to_pylist()
    numbers = np.array([int(name.partition("-")[2]) % count for name in names])
    return [(int(number), batch.filter(numbers == number)) for number in np.unique(numbers)]


class TrimsAll(Journal):
    """Trims the whole topic where it writes its own partition again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        admin = options["admin"]
        assert isinstance(admin, MemoryAdmin)
        delete = admin.delete_records

        def delete_all(topic: str, before: dict[int, int]) -> None:
            delete(topic, admin.offsets(topic, "latest") | before)

        admin.delete_records = delete_all  # type: ignore[method-assign, assignment]


@dataclass(frozen=True)
class UnfencedShare(Share):
    def transactional_id(self, topic: str) -> str:
        return f"{topic}-{self.number}-{uuid4()}"


class Unfenced(Journal):
    """Takes a transactional id of its own, so that nobody is shut out."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        share = options.pop("share")
        super().__init__(*arguments, share=UnfencedShare(share.number, share.count), **options)


def test_a_division_by_regions_loses_the_order_of_rows_and_the_runs_notice() -> None:
    assert notices(
        lambda seed: run_seed(seed, make_world=lambda at: ShareWorld(at, divided=by_region)),
        0,
        "out of order",
    )


def test_a_journal_that_trims_other_shares_too_is_noticed() -> None:
    assert notices(
        lambda seed: run_seed(seed, make_world=lambda at: ShareWorld(at, make_journal=TrimsAll)),
        18,
        "delivered twice",
    )


def test_consumers_that_nobody_shuts_out_are_noticed() -> None:
    assert notices(
        lambda seed: run_seed(seed, make_world=lambda at: ShareWorld(at, make_journal=Unfenced)),
        17,
        "delivered twice",
    )


def test_calls_that_are_acknowledged_before_other_holders_have_their_part_are_noticed() -> None:
    assert notices(
        lambda seed: run_seed(seed, make_world=lambda at: ShareWorld(at, answers_early=True)), 1, "lost"
    )


def test_functions_that_begin_after_their_session_are_noticed() -> None:
    assert notices(
        lambda seed: run_seed(
            seed, make_world=lambda at: SharedFunctionWorld(at, may_begin=lambda consumer: True)
        ),
        0,
        "begun after the session",
    )
