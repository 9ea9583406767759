"""A mover that is killed at any call is followed by one that goes on, and nothing stays behind."""

from collections import Counter

import pytest
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.states import PlanState
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Partition,
)

from tests.support.fleet.mover_runs import MEGABYTE, Killed, MoverWorld, random_world
from tests.support.seeds import so_many

_CALLS = (
    "alter_configs",
    "reassign",
    "move_log_dirs",
    "elect_preferred_leaders",
    "commit",
)
_RARE = {"elect_preferred_leaders": 0.3}  # few lives come to it
killed_at: Counter[tuple[str, str]] = Counter()


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(30, 40)))
def test_whatever_kills_it_every_move_ends_and_no_throttle_stays(seed: int) -> None:
    world, moves, source = random_world(seed)
    before = {move.partition: list(move.before) for move in moves}
    after = {move.partition: list(move.after) for move in moves}

    def kill(call: str) -> str | None:
        odds = _RARE.get(call, 0.08 if call in _CALLS else 0.01)
        if source.random() > odds:
            return None
        fate = source.choice(["before", "after"])
        killed_at[call, fate] += 1
        return fate

    world.submit(moves)
    cancel_at = source.choice([None, source.randrange(2, 60)])
    down_at = source.choice([None, source.randrange(2, 40)])
    throttle_at = {source.randrange(1, 60): source.choice([None, 3, 8]) for _ in range(source.randrange(4))}
    mover = world.new_mover(kill)
    for second in range(5_000):
        try:
            while mover.step():
                pass
        except Killed:
            mover = world.new_mover(kill)
        _check_factor(world.cluster.partitions.items())
        _check_listed(world)
        world.pass_time()
        stored = world.fleet_store.plan("plan")
        if stored is not None and stored.record.state is PlanState.ENDED:
            break
        if second == cancel_at:
            world.ask(RequestKind.CANCEL)
        if second in throttle_at:
            rate = throttle_at[second]
            world.ask(RequestKind.THROTTLE, rate_bytes_per_s=None if rate is None else rate * MEGABYTE)
        if second == down_at:
            world.cluster.stop_broker(3)
        if down_at is not None and second == down_at + 30:
            world.cluster.start_broker(3)
    record = world.record()
    assert record.state is PlanState.ENDED
    assert set(record.outcomes) <= {"d", "c", "f"}
    assert cancel_at is not None or set(record.outcomes) == {"d"}
    assert world.leftovers() == []
    for number, move in enumerate(moves):
        replicas = world.cluster.partitions[move.partition].replicas
        if record.outcomes[number] == "d":
            assert replicas == after[move.partition]
        else:
            assert replicas in (before[move.partition], after[move.partition])


def test_every_call_that_changes_something_was_met() -> None:
    assert {(call, fate) for call in _CALLS for fate in ("before", "after")} <= set(killed_at)


def _check_listed(world: MoverWorld) -> None:
    """As long as a throttle is set, every copy is bound by it, and nothing that has not begun."""
    stored = world.fleet_store.plan("plan")
    is_set = LEADER_RATE in world.cluster.configs.get(ALL_BROKERS, {})
    if stored is None or not is_set:
        return
    listed = {
        Partition(resource.name, int(entry.partition(":")[0]))
        for resource, values in world.cluster.configs.items()
        for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        for entry in values.get(name, "").split(",")
        if entry
    }
    copied = {known for known, at in world.cluster.partitions.items() if at.target}
    assert copied <= listed
    moves = world.fleet_store.read_moves("plan", stored.record.moves_digest)
    assert not listed & {moves[number].partition for number in stored.record.pending()}


def _check_factor(partitions) -> None:  # type: ignore[no-untyped-def]
    for partition, known in partitions:
        assert len(known.replicas) >= 2, partition
        racks = {(broker + 1) // 2 for broker in known.replicas}
        assert len(racks) >= 2, partition
