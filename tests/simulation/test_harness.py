"""Seeded runs of a whole cluster, each answer held against a plain recount."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from rtolap.coordinator import moves
from rtolap.coordinator.alterations import endings
from rtolap.coordinator.alterations import settings as altered_settings
from rtolap.coordinator.alterations.revisions import FollowingRevisions
from rtolap.coordinator.heartbeats import Heartbeats
from rtolap.metadata import segment_batches, segments
from rtolap.metadata.merging import units
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import Cube
from rtolap.model.evolution.cube_changes import CubeChange
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import StagedPart
from rtolap.query.session_token import SessionPositions, SessionTokens

from tests.support.cubes.harness import run_seed
from tests.support.cubes.harness_features import Feature
from tests.support.cubes.stepped_receiver import Receiver
from tests.support.seeds import notices, so_many

SEEDS = so_many(3, 4)
FORGETFUL_SEED = 2
HOPPING_SEED = 2
CARELESS_SEED = 26
MERGED_SEED = 0
ALTERED_SEED = 0
LOSING_SEEDS = (10,)
ENDING_SEEDS = (3, 4)
COLD_SEED = 2
UNHEARD_SEED = 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_answer_is_the_recount_of_a_prefix(seed: int) -> None:
    """Replay a failure with `python -m tests.support.cubes.harness --seed N`."""
    counts = run_seed(seed)
    assert counts["answers"] > 5, "a run that hardly ever answers proves little"


def test_history_goes_on_though_staged_parts_are_lost() -> None:
    counts = run_seed(5, {Feature.LOSING_FILES}, steps=200)
    assert counts["parts lost"] > 0


@pytest.mark.parametrize("seed", LOSING_SEEDS)
def test_history_goes_on_though_versions_have_lost_their_base_cuboids(seed: int) -> None:
    counts = run_seed(seed, {Feature.LOSING_FILES}, steps=200)
    assert counts["versions rebuilt"] > 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_of_what_logs_hold_that_lose_their_tails(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.CUTTING_LOGS}, steps=250)`."""
    counts = run_seed(seed, {Feature.CUTTING_LOGS}, steps=250)
    assert counts["logs cut"] > 0
    assert counts["answers"] > 5


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_records_of_an_earlier_version_are_moved(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.UPGRADING}, steps=100)`."""
    counts = run_seed(seed, {Feature.UPGRADING}, steps=100)
    assert counts["records aged"] > 0
    assert counts["records settled"] or counts["coordinators killed"], "who is killed at it counts nothing"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_batches_replace_segments(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.BATCHES})`."""
    counts = run_seed(seed, {Feature.BATCHES})
    assert counts["versions of a batch"] > 0
    assert counts["answers"] > 5


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_partitions_move_and_nobody_notices(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.MOVING}, steps=300)`."""
    counts = run_seed(seed, {Feature.MOVING}, steps=300)
    assert counts["moves unnoticed"] > 0
    assert counts["asked_ahead"] > 0
    assert counts["crashes"] > 0
    assert counts["answers"] > 5


def test_the_runs_notice_an_assignment_that_stands_before_its_owners_are_warm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moves, "not_warm", lambda *known: [])
    moving = functools.partial(run_seed, features={Feature.MOVING}, steps=300)
    assert notices(moving, COLD_SEED, "the move is noticed")


def test_the_runs_notice_statements_that_do_not_reach_who_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that has not looked yet has two runners; the one that served knows nothing of the epoch."""
    monkeypatch.setattr(Receiver, "for_epoch", lambda self, epoch: self)
    moving = functools.partial(run_seed, features={Feature.MOVING}, steps=300)
    assert notices(moving, 0, "the move is noticed")


def test_the_runs_notice_a_batch_that_takes_the_vector_that_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the topic brought between plan and hand-over is then in no answer, or twice."""
    replaced = segment_batches.replace_by_batch

    def careless(
        record: SegmentRecord, batch: str, part: StagedPart, *, first: Offsets, **more: Any
    ) -> SegmentRecord:
        found = segment_batches.vector_of_batch(record, first)
        ranges = tuple(PartRange(partition, 0, end) for partition, end in found.items())
        of_now = msgspec.structs.replace(part, ranges=ranges)
        return replaced(record, batch, of_now, first=first, **{**more, "version": record.version + 1})

    monkeypatch.setattr(segment_batches, "replace_by_batch", careless)
    assert notices(
        functools.partial(run_seed, features={Feature.BATCHES}), CARELESS_SEED, "differs from the recount"
    )


def test_the_runs_notice_a_batch_that_is_planned_before_the_receivers_were_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that has just begun takes it for granted that receivers hold nothing."""
    monkeypatch.setattr(Heartbeats, "unknown", lambda *known: [])
    assert notices(
        functools.partial(run_seed, features={Feature.BATCHES}),
        UNHEARD_SEED,
        "of which a receiver has reported",
    )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_segments_merge(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.MERGING})`."""
    counts = run_seed(seed, {Feature.MERGING})
    assert counts["sets committed"] or counts["purges"], "a run without merges proves little"
    assert counts["answers"] > 5


def test_the_runs_notice_a_set_that_is_read_once_for_each_of_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divide = units.history_units

    def careless(records: Iterable[SegmentRecord]) -> list[units.HistoryUnit]:
        return [unit for unit in divide(records) for _ in unit.records]

    monkeypatch.setattr(units, "history_units", careless)
    assert notices(
        functools.partial(run_seed, features={Feature.MERGING}), MERGED_SEED, "differs from the recount"
    )


def test_the_runs_notice_a_version_that_stays_a_member_of_its_predecessors_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its late events are in no answer then."""
    promote = segments.promote

    def careless(record: SegmentRecord, build_id: str, **more: Any) -> SegmentRecord:
        return msgspec.structs.replace(promote(record, build_id, **more), merged=record.merged)

    monkeypatch.setattr(segments, "promote", careless)
    assert notices(
        functools.partial(run_seed, features={Feature.MERGING}), MERGED_SEED, "differs from the recount"
    )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3, 4)))
def test_every_answer_is_the_recount_while_the_cube_is_altered(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.ALTERING})`."""
    counts = run_seed(seed, {Feature.ALTERING})
    assert counts["alterations"] > 0
    assert counts["alterations refused"] > 0
    assert counts["answers"] > 5


def test_the_runs_notice_a_change_that_is_applied_though_rows_look_otherwise_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Receivers that have started since drop late events, and others do not."""

    def careless(before: Cube, after: Cube) -> tuple[CubeChange, ...]:
        return (CubeChange("late.policy", before.late.policy, after.late.policy, "applied"),)

    monkeypatch.setattr(altered_settings, "cube_changes", careless)
    assert notices(
        functools.partial(run_seed, features={Feature.ALTERING}), ALTERED_SEED, "differs from the recount"
    )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_every_answer_is_the_recount_while_a_revision_follows(seed: int) -> None:
    """Replay a failure with `run_seed(N, {Feature.REVISING})`."""
    counts = run_seed(seed, {Feature.REVISING})
    assert counts["runs with a revision"] == 1 or not counts["revisions tried"]
    assert counts["answers"] > 5


def test_the_runs_notice_a_revision_that_begins_where_receivers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have read events of its time by then."""
    whole = FollowingRevisions._control

    def careless(
        self: FollowingRevisions, cube: str, control: CubeControl, *, reads_again: bool
    ) -> CubeControl:
        made = whole(self, cube, control, reads_again=reads_again)
        return msgspec.structs.replace(
            made, first_offsets={part: at + 20 for part, at in made.first_offsets.items()}
        )

    monkeypatch.setattr(FollowingRevisions, "_control", careless)
    assert notices(functools.partial(run_seed, features={Feature.REVISING}), 0, "lost for the revision")


@pytest.mark.parametrize("ended", [{"revisions ended"}, {"revisions ended", "revisions resumed"}])
def test_older_revisions_end_and_are_read_again_in_the_runs(ended: set[str]) -> None:
    """Of these seeds, the second one has a version that loses what it was built of."""
    counts = run_seed(ENDING_SEEDS[len(ended) - 1], {Feature.REVISING})
    assert ended <= {name for name, number in counts.items() if number}
    assert counts["answers"] > 5


def test_the_runs_notice_a_revision_that_ends_where_the_next_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events of its time are accepted as long as they are not purged."""
    monkeypatch.setattr(endings, "accepts_nothing", lambda *known: True)
    monkeypatch.setattr(endings, "_needs_receivers", lambda record: False)
    assert notices(
        functools.partial(run_seed, features={Feature.REVISING}), ENDING_SEEDS[0], "differs from the recount"
    )


def test_the_runs_notice_a_query_service_that_forgets_what_it_has_answered_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the real one that is asked: a receiver that is behind then answers for less than another did."""
    monkeypatch.setattr(SessionPositions, "of", lambda self, cube, cube_id: {})
    assert notices(run_seed, FORGETFUL_SEED, "went backwards")


def test_the_runs_notice_a_query_service_that_does_not_heed_a_clients_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds older positions than the service that the client was answered by before."""
    monkeypatch.setattr(SessionTokens, "read", lambda self, text: [])
    assert notices(run_seed, HOPPING_SEED, "went backwards for a client")
