"""Which actions a seeded run takes, and how often: those of every cube, and those of features beside them."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum, auto

from tests.support.cubes.harness_actions import Actions
from tests.support.merging.actions import commit_merge, plan_merges


class Feature(StrEnum):
    """What a run does besides.

    Attributes:
        LOSING_FILES: staged parts and base cuboids of READY versions are lost or damaged in the object store.
        CUTTING_LOGS: logs lose their tails where no vector counts them, and grow again; the cube drops what
            is lost.
        UPGRADING: records are as an earlier version has left them, and a leader moves them into pages.
        BATCHES: segments are replaced by batches, and some that have no event get theirs out of one.
        ALTERING: the cube's definition is altered, and receivers start again by what stands.
        MOVING: moves that are to go unnoticed are planned, cancelled and ended; receivers are killed more
            often.
        RETIRING: moves, and replica sets are drained, killed and revived; the leader goes on with it by
            itself.
        REVISING: a revision follows the cube. Of the cube, answers are asked of the time before it. It ends
            once nothing of its time is accepted, and is read again where a version has lost what it was built
            of.
        MERGING: history merges: sets are planned, written and committed, and cleaned up more often.
        RESTORING: all metadata is lost and restored from the newest backup, files are lost, history merges.
            Nothing is purged: what the purge deletes after a backup, no restore brings back.
        SETTING_CLOCKS: the wall clock is set, forwards and back; events follow it.
    """

    LOSING_FILES = auto()
    CUTTING_LOGS = auto()
    UPGRADING = auto()
    BATCHES = auto()
    ALTERING = auto()
    MOVING = auto()
    RETIRING = auto()
    REVISING = auto()
    MERGING = auto()
    RESTORING = auto()
    SETTING_CLOCKS = auto()


Features = frozenset[Feature]
Weights = tuple[tuple[Callable[[Actions], object], float], ...]

ALONE: Features = frozenset()
_ALWAYS: Weights = (
    (Actions.produce, 10),
    (Actions.consume, 30),
    (Actions.advance, 8),
    (Actions.look, 20),
    (Actions.close, 10),
    (Actions.realign, 15),
    (Actions.upload, 15),
    (Actions.merge, 3),
    (Actions.checkpoint, 4),
    (Actions.write_out, 8),
    (Actions.crash, 1),
    (Actions.lose_disk, 0.4),
    (Actions.elect, 1),
    (Actions.build, 8),
    (Actions.promote, 0.5),
    (Actions.requeue, 0.5),
    (Actions.force, 0.3),
    (Actions.purge, 0.3),
    (Actions.cleanup, 0.5),
    (Actions.reassign, 0.6),
)
_MOVING: Weights = (
    (Actions.plan_move, 4.0),
    (Actions.cancel_move, 0.4),
    (Actions.tick_move, 4.0),
    (Actions.crash, 2.0),
)
_BESIDE: dict[Feature, Weights] = {
    Feature.LOSING_FILES: ((Actions.lose_part, 4.0), (Actions.lose_base, 4.0)),
    Feature.CUTTING_LOGS: ((Actions.cut_log, 4.0),),
    Feature.UPGRADING: ((Actions.age, 6.0), (Actions.settle, 3.0)),
    Feature.BATCHES: ((Actions.plan_batch, 8.0), (Actions.apply_batch, 8.0)),
    Feature.ALTERING: ((Actions.alter, 8.0),),
    Feature.MOVING: _MOVING,
    Feature.RETIRING: (
        *_MOVING,
        (Actions.drain_set, 3.0),
        (Actions.undo_drain, 2.0),
        (Actions.kill_set, 2.0),
        (Actions.revive_set, 2.5),
        (Actions.relieve, 12.0),
        (Actions.end_relief, 6.0),
    ),
    Feature.REVISING: (
        (Actions.report_replay, 8.0),
        (Actions.revise, 6.0),
        (Actions.purge, 1.0),
        (Actions.lose_base, 0.5),
        (Actions.end_revision, 12.0),
    ),
    Feature.MERGING: ((plan_merges, 8.0), (commit_merge, 12.0), (Actions.cleanup, 3.0), (Actions.purge, 0.3)),
    Feature.RESTORING: (
        (Actions.lose_part, 2.0),
        (Actions.lose_base, 2.0),
        (plan_merges, 3.0),
        (commit_merge, 4.0),
    ),
    Feature.SETTING_CLOCKS: ((Actions.set_clock, 3.0),),
}


def weights_of(features: Features) -> Weights:
    """Return each action with its weight, for `random.choices`."""
    weights = [*_ALWAYS]
    for feature, beside in _BESIDE.items():
        if feature in features:
            weights += beside
    return tuple(
        (action, weight)
        for action, weight in weights
        if action is not Actions.purge or Feature.RESTORING not in features
    )


def drawn_features(seed: int) -> Features:
    """Return two to four features that meet in a run."""
    drawn = random.Random(f"features of {seed}")
    return frozenset(drawn.sample(list(Feature), drawn.choice((2, 2, 3, 4))))
