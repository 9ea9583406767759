"""What a status says of itself: its age, who is away, what is gone; and the fate of unanswered requests."""

from __future__ import annotations

import threading

import pytest
from rtolap.base.errors import CommitUnknown, Unanswered
from rtolap.cli.fleet.moves_text import print_status, status_document
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.standing import LOOK_AGE_MS_MAX, PlanStanding, standing
from rtolap.fleet.moves.status import plan_status
from rtolap.fleet.moves.store import FleetStore
from rtolap.fleet.moves.submitting import MoverRequests
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.metadata import paths

from tests.support.fleet.mover_runs import MEGABYTE, TOKEN, MoverWorld
from tests.support.twins.clock import ManualClock
from tests.support.twins.metadata import MemoryStore


@pytest.fixture
def world() -> MoverWorld:
    made = MoverWorld(6)
    for disk in (disk for broker in made.cluster.brokers.values() for disk in broker.disks.values()):
        disk.total_bytes = 1000 * MEGABYTE
    for number in range(12):
        made.add("orders", number, [1, 3], 60 * MEGABYTE)
    return made


def _plan(world: MoverWorld) -> Plan:
    return plan_disks(collect_snapshot(world.administration, ManualClock(5)), runs=1)


def _requests(world: MoverWorld, timeout_s: float) -> MoverRequests:
    return MoverRequests(world.fleet_store, world.clock, TOKEN, "ada", answer_timeout_s=timeout_s)


def _nodes(world: MoverWorld) -> list[str]:
    return [
        *world.store.children(paths.fleet_requests("fleet")),
        *world.store.children(paths.fleet_plans("fleet")),
        *world.store.children(f"{paths.fleet('fleet')}/asking"),
    ]


def test_what_no_mover_answers_is_withdrawn_and_no_later_mover_does_it(world: MoverWorld) -> None:
    before = {known: list(at.replicas) for known, at in world.cluster.partitions.items()}
    with pytest.raises(Unanswered, match="withdrawn, and nothing is done"):
        _requests(world, 0.05).submit(_plan(world), rate_bytes_per_s=None)
    assert _nodes(world) == []
    world.run(5)
    assert world.fleet_store.current() is None
    assert {known: list(at.replicas) for known, at in world.cluster.partitions.items()} == before


def test_a_request_whose_sender_has_died_is_refused_by_whoever_serves_next(world: MoverWorld) -> None:
    moves = [world.planned(partition, [2, 4]) for partition in sorted(world.cluster.partitions)]
    sender = MemoryStore(world.store.ensemble)
    world.fleet_store, fleet_store = FleetStore(sender, "fleet"), world.fleet_store
    request = world.submit(moves)
    world.fleet_store = fleet_store
    sender.close()
    world.run(3)
    assert world.answer(request) == "refused"
    assert fleet_store.current() is None
    assert fleet_store.plans() == ()


def test_a_sender_that_is_interrupted_withdraws_its_request(
    world: MoverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rtolap.fleet.moves.submitting.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _requests(world, 10.0).ask(RequestKind.PAUSE)
    assert _nodes(world) == []


@pytest.mark.parametrize("at", range(4))
def test_an_answer_that_comes_while_a_request_is_withdrawn_counts(world: MoverWorld, at: int) -> None:
    """The mover answers before the n-th call that withdrawing makes; with the last it comes too late."""
    calls = iter(range(100))
    inner = world.store

    class Late:
        def __getattr__(self, name: str) -> object:
            call = getattr(inner, name)

            def passed(*arguments: object) -> object:
                if name in ("get", "commit") and next(calls) == at:
                    world.mover.step()
                return call(*arguments)

            return passed

    moves = [world.planned(partition, [2, 4]) for partition in sorted(world.cluster.partitions)]
    request = world.submit(moves)
    answered = FleetStore(Late(), "fleet").stop_waiting(request)  # type: ignore[arg-type]
    current = world.fleet_store.current()
    if answered is None:
        world.run(3)
        assert world.fleet_store.current() is None
        assert world.fleet_store.request(request) is None
    else:
        assert answered.answer is not None
        assert answered.answer.code == ""
        assert current is not None
    assert world.store.children(f"{paths.fleet('fleet')}/asking") == ()


def test_a_request_of_which_it_is_not_known_whether_it_was_kept_ends_with_its_sender(
    world: MoverWorld,
) -> None:
    sender = MemoryStore(world.store.ensemble)
    requests = MoverRequests(FleetStore(sender, "fleet"), world.clock, TOKEN, "ada", answer_timeout_s=0.05)
    world.store.ensemble.fault = lambda operations: (
        "after" if any("asking" in operation.path for operation in operations) else None
    )
    with pytest.raises(CommitUnknown):
        requests.submit(_plan(world), rate_bytes_per_s=None)
    world.store.ensemble.fault = None
    sender.close()
    world.run(3)
    assert world.fleet_store.current() is None


def _standing(world: MoverWorld) -> PlanStanding:
    record = world.record()
    plan = PlanMoves.of(world.fleet_store.read_moves("plan", record.moves_digest))
    return standing(world.fleet_store, world.administration, record, plan, world.clock.now_ms())


def _text(world: MoverWorld, capsys: pytest.CaptureFixture[str]) -> str:
    record = world.record()
    plan = PlanMoves.of(world.fleet_store.read_moves("plan", record.moves_digest))
    print_status(plan_status(record, plan, world.clock.now_ms(), MoverSettings()), _standing(world))
    told = capsys.readouterr()
    return " ".join((told.out + told.err).split())


def test_a_status_says_how_old_it_is_once_its_mover_is_dead(
    world: MoverWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = MemoryStore(world.store.ensemble)
    leads = threading.Event()
    election = serving.elect(paths.fleet_lease("fleet"), "host:1", leads.set)
    assert leads.wait(10)
    moves = [world.planned(partition, [2, 4]) for partition in sorted(world.cluster.partitions)]
    world.submit(moves)
    world.run(3)
    world.mover.report("")
    stands = _standing(world)
    assert (stands.mover, stands.age_ms, stands.is_stale) == ("host:1", 0, False)
    assert "no mover serves" not in _text(world, capsys)
    election.close()
    serving.close()
    world.pass_time(3600)
    stands = _standing(world)
    assert (stands.mover, stands.age_ms, stands.is_stale) == (None, 3_600_000, True)
    text = _text(world, capsys)
    assert "no mover serves" in text
    assert "3600 s ago" in text
    assert "expected end: unknown" in text
    plan = PlanMoves.of(moves)
    document = status_document(
        plan_status(world.record(), plan, world.clock.now_ms(), MoverSettings()), stands
    )
    assert document["expected_end_ms"] is None
    assert document["age_ms"] == 3_600_000


def test_a_mover_that_has_the_lease_and_does_not_look_is_noticed(world: MoverWorld) -> None:
    stands = PlanStanding("host:1", "", 1, LOOK_AGE_MS_MAX + 1, (), ())
    assert stands.is_stale
    assert not PlanStanding("host:1", "", 1, LOOK_AGE_MS_MAX, (), ()).is_stale
    assert MoverSettings().report_every_ms * 2 < LOOK_AGE_MS_MAX


def test_a_status_names_brokers_that_are_away_and_partitions_that_are_gone(
    world: MoverWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    world.add("gone", 0, [1, 3])
    moves = [world.planned(partition, [2, 4]) for partition in sorted(world.cluster.partitions)]
    world.submit(moves)
    world.run(2)
    assert _standing(world).brokers_away == ()
    assert _standing(world).partitions_gone == ()
    world.cluster.stop_broker(4)
    world.cluster.remove_topic("gone")
    stands = _standing(world)
    assert stands.brokers_away == (4,)
    assert stands.partitions_gone == ("gone:0",)
    text = _text(world, capsys)
    assert "brokers that do not serve: 4" in text
    assert "partitions that there are no more: gone:0" in text
