"""Seeded runs of the loader under crashes, lost and doubled requests, two owners and restarts of the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from rtolap.model.loader import LoaderSink
from rtolap.protocols.stream_load.messages import LoadState, SendOptions
from rtolap.stored.loader import label_retention, settle, states
from rtolap.stored.loader.commit import Committer
from rtolap.stored.loader.records.decode import Decoded
from rtolap.stored.loader.settle import Settler
from rtolap.stored.loader.states import ACTIONS, Action, Sent
from rtolap.stored.metastore.leases import Lease
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords

from tests.support.loader.loader_runs import MODELS, ForgetfulRun, Run, World
from tests.support.loader.young_brokers import YoungBrokersRun
from tests.support.seeds import notices, so_many

SEEDS = so_many(20, 26)
LONG_SEEDS, LONG_STEPS = range(500, 500 + so_many(2)), 240
_GROUPS = 1


@pytest.mark.seeded
@pytest.mark.parametrize("group", range(_GROUPS))
def test_each_record_has_its_effect_once_whatever_dies(group: int) -> None:
    """Replay a failure with `python -m tests.support.loader.loader_runs --seed N`."""
    world, counts, models = World(), Counter[str](), Counter[str]()
    for seed in range(group, SEEDS, _GROUPS):
        run = Run(world, seed)
        models[run.model] += 1
        try:
            counts += run.run()
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    runs = models.total()
    assert len(models) == len(MODELS) or runs < 20
    wanted = ("crash", "answer lost", "request twice", "came late", "unacknowledged", "taken over",
              "partitions added")  # fmt: skip
    assert all(counts[what] >= runs // 20 for what in wanted), (
        f"runs in which little happens prove little: {counts}"
    )


def test_no_batch_is_loaded_twice_into_a_sink_that_forgets_labels_by_number() -> None:
    world, counts = World(), Counter[str]()
    for seed in range(SEEDS):
        counts += ForgetfulRun(world, seed).run()
    wanted = ("others' labels", "crash", "a person: loaded", "a person: not loaded")
    assert all(counts[what] for what in wanted), f"runs in which little happens prove little: {counts}"


def test_no_loader_stops_for_brokers_that_do_not_know_its_topic_yet() -> None:
    world, counts = World(), Counter[str]()
    for seed in range(SEEDS):
        counts += YoungBrokersRun(world, seed).run()
    assert counts["topic unknown"] > SEEDS


def test_the_runs_notice_a_loader_that_takes_the_first_such_answer_for_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "TOPIC_MISSING_S", 0.0)
    monkeypatch.setattr(states, "TOPIC_MISSING_ANSWERS", 1)
    assert notices(lambda seed: YoungBrokersRun(World(), seed).run(), 0, "topic_gone")


def test_the_runs_notice_a_loader_that_forgets_no_such_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states.MissingTopic, "found", lambda self: None)
    assert notices(lambda seed: YoungBrokersRun(World(), seed).run(), 0, "topic_gone")


def test_the_runs_notice_a_loader_that_believes_each_unknown_label_of_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_age(record: OffsetsRecord, records: object, now_ms: int, sink: LoaderSink, _: object) -> Sent:
        sent_at_ms = record.first_sent_at_ms or 0
        return Sent.LATELY if now_ms - sent_at_ms < sink.label_kept_ms else Sent.LONG_AGO

    monkeypatch.setattr(settle, "sent_when", by_age)
    assert notices(lambda seed: ForgetfulRun(World(), seed).run(), 19, "differs from a recount")


def test_the_runs_notice_a_witness_that_finished_in_the_same_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    def witness_of(first_sent_at_ms: int | None, records: Iterable[OffsetsRecord]) -> OffsetsRecord | None:
        later_ms = None if first_sent_at_ms is None else first_sent_at_ms + 1
        return real(later_ms, records)

    real = label_retention.witness_of
    monkeypatch.setattr(label_retention, "witness_of", witness_of)
    assert notices(lambda seed: ForgetfulRun(World(), seed).run(), 23, "differs from a recount")


def test_long_lives_end_as_well() -> None:
    """Columns, partitions and labels that were given back are met again and again."""
    world, counts = World(), Counter[str]()
    for seed in LONG_SEEDS:
        counts += Run(world, seed, LONG_STEPS).run()
    assert min(counts["crash"], counts["taken over"]) >= len(LONG_SEEDS), counts


def each_attempt_has_a_label_of_its_own(patch: pytest.MonkeyPatch) -> None:
    real = OffsetsRecords.mark_sent

    def mark_sent(self: OffsetsRecords, lease: Lease, *sent: Any) -> OffsetsRecord:
        record = real(self, lease, *sent)
        return msgspec.structs.replace(record, label=f"{record.label}_{record.attempts}")

    patch.setattr(OffsetsRecords, "mark_sent", mark_sent)


def what_is_under_way_counts_as_loaded(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(ACTIONS, (Sent.LATELY, LoadState.PREPARE), Action.LOADED)


def labels_go_back_as_soon_as_their_batches_are_loaded(patch: pytest.MonkeyPatch) -> None:
    """A request of theirs that is still under way then finds the label unused."""

    def is_ripe(self: Committer, record: OffsetsRecord, now_ms: int) -> bool:
        return record.loaded

    patch.setattr(Committer, "_is_ripe", is_ripe)


def requests_do_not_say_until_when_they_count(patch: pytest.MonkeyPatch) -> None:
    """One whose sender stood still comes when its label was given back."""
    options = Settler._options

    def without(self: Settler, decoded: Decoded) -> SendOptions:
        return msgspec.structs.replace(options(self, decoded), not_after_ms=None)

    patch.setattr(Settler, "_options", without)


@pytest.mark.parametrize(
    ("fault", "first_seed"),
    [
        (each_attempt_has_a_label_of_its_own, 4),
        (what_is_under_way_counts_as_loaded, 46),
        (labels_go_back_as_soon_as_their_batches_are_loaded, 124),
        (requests_do_not_say_until_when_they_count, 65),
    ],
)
def test_the_runs_notice(
    fault: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert notices(lambda seed: Run(World(), seed).run(), first_seed, "differs from a recount")
