import pytest
from rtolap.fleet.moves.records import Hours
from rtolap.fleet.moves.requests import MoveRequest, RequestKind, signed
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState, PlanState
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ConfigKind,
    ConfigResource,
    Partition,
    Replica,
)
from rtolap.metadata.store import Create

from tests.support.fleet.mover_runs import MEGABYTE, TOKEN, MoverWorld

_REFUSED = "plan_refused"
ORDERS = ConfigResource(ConfigKind.TOPIC, "orders")


@pytest.fixture
def world() -> MoverWorld:
    return MoverWorld()


def test_a_plan_ends_with_every_replica_where_it_asked_for(world: MoverWorld) -> None:
    first, second = world.add("orders", 0, [1, 3]), world.add("orders", 1, [2, 3])
    third = world.add("audit", 0, [1, 4])
    world.submit(
        [
            world.planned(first, [4, 1], ["/d1", ""]),
            world.planned(second, [3, 2]),
            world.planned(third, [1, 4], ["/d1", ""]),
        ]
    )
    record = world.run_until_ended()
    assert record.outcomes == "ddd"
    partitions = world.cluster.partitions
    assert [partitions[known].replicas for known in (first, second, third)] == [[4, 1], [3, 2], [1, 4]]
    assert [partitions[known].leader for known in (first, second, third)] == [4, 3, 1]
    assert world.cluster.replicas[Replica(first, 4)].path == "/d1"
    assert world.cluster.replicas[Replica(third, 1)].path == "/d1"
    assert world.leftovers() == []


def test_throttles_are_set_before_the_first_move_and_bind_it(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3], 50 * MEGABYTE)
    world.submit([world.planned(partition, [2, 3])], rate=5 * MEGABYTE)
    world.run(3)
    assert world.cluster.configs[ORDERS] == {LEADER_REPLICAS: "0:1,0:3", FOLLOWER_REPLICAS: "0:2"}
    assert world.cluster.configs[ALL_BROKERS][LEADER_RATE] == str(5 * MEGABYTE)
    assert 0 < world.cluster.replicas[Replica(partition, 2)].size_bytes <= 15 * MEGABYTE
    world.run_until_ended()
    assert world.leftovers() == []


def test_throttles_of_others_stay(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3])
    world.add("orders", 1, [1, 3])
    world.cluster.configs[ALL_BROKERS] = {LEADER_RATE: "777"}
    world.cluster.configs[ORDERS] = {LEADER_REPLICAS: "1:1,0:1", FOLLOWER_REPLICAS: "*"}
    world.submit([world.planned(partition, [2, 3])])
    world.run(2)
    assert world.cluster.configs[ORDERS] == {LEADER_REPLICAS: "1:1,0:1,0:3", FOLLOWER_REPLICAS: "*"}
    world.run_until_ended()
    assert world.cluster.configs[ALL_BROKERS] == {LEADER_RATE: "777"}
    assert world.cluster.configs[ORDERS] == {LEADER_REPLICAS: "1:1,0:1", FOLLOWER_REPLICAS: "*"}


def test_a_stuck_partition_holds_nobody_up_and_is_undone_in_the_end() -> None:
    world = MoverWorld(settings=MoverSettings(moves_per_broker=1, stall_ms=5_000, give_up_ms=120_000))
    partitions = [world.add("orders", number, [1, 3]) for number in range(6)]
    world.submit([world.planned(partition, [2, 3]) for partition in partitions])
    world.run(1)
    stuck = next(known for known in partitions if world.cluster.partitions[known].target)
    world.cluster.partitions[stuck].stuck = True
    world.run(60)
    assert world.record().counts()[MoveState.DONE] == 5
    record = world.run_until_ended()
    assert record.counts()[MoveState.FAILED] == 1
    assert "nothing was copied" in next(iter(record.reasons.values()))
    assert world.cluster.partitions[stuck].replicas == [1, 3]
    assert world.leftovers() == []


def test_the_biggest_moves_of_the_busiest_broker_begin_first() -> None:
    world = MoverWorld(settings=MoverSettings(moves_per_broker=1))
    sizes = [10, 40, 20, 30]
    partitions = [world.add("orders", n, [1, 3], size * MEGABYTE) for n, size in enumerate(sizes)]
    world.submit([world.planned(partition, [2, 3]) for partition in partitions])
    begun: list[int] = []
    while len(begun) < 4:
        world.run()
        begun += [number for number in world.record().active if number not in begun]
    assert begun == [1, 3, 2, 0]


def test_a_cancelled_plan_leaves_former_replicas_in_their_former_order(world: MoverWorld) -> None:
    partitions = [world.add("orders", number, [1, 3], 100 * MEGABYTE) for number in range(3)]
    disks = world.add("audit", 0, [1, 3], 100 * MEGABYTE)
    world.submit([*(world.planned(p, [3, 2]) for p in partitions), world.planned(disks, [1, 3], ["/d1", ""])])
    world.run(4)
    assert world.record().active
    request = world.ask(RequestKind.CANCEL, plan_id="plan", reason="too slow")
    record = world.run_until_ended()
    assert world.answer(request) == ""
    assert set(record.outcomes) == {"c"}
    assert [world.cluster.partitions[known].replicas for known in partitions] == [[1, 3]] * 3
    assert world.cluster.replicas[Replica(disks, 1)].path == "/d0"
    assert world.leftovers() == []
    assert "too slow" in record.history[1].note


def test_one_partition_is_cancelled_and_the_others_go_on(world: MoverWorld) -> None:
    partitions = [world.add("orders", number, [1, 3], 50 * MEGABYTE) for number in range(3)]
    world.submit([world.planned(partition, [2, 3]) for partition in partitions])
    world.run(2)
    request = world.ask(RequestKind.CANCEL, partitions=(("orders", 1),))
    record = world.run_until_ended()
    assert world.answer(request) == ""
    assert record.outcomes == "dcd"
    assert world.cluster.partitions[partitions[1]].replicas == [1, 3]


def test_cancels_are_paced_by_what_they_delete() -> None:
    settings = MoverSettings(moves_per_broker=9, ahead_s=1_000, delete_bytes_per_s=MEGABYTE)
    world = MoverWorld(settings=settings)
    partitions = [world.add("orders", number, [1, 3], 4_000 * MEGABYTE) for number in range(3)]
    world.submit([world.planned(partition, [2, 3]) for partition in partitions], rate=60 * MEGABYTE)
    world.run(2)
    copied = min(world.cluster.replicas[Replica(known, 2)].size_bytes for known in partitions)
    assert copied > 5 * MEGABYTE
    world.ask(RequestKind.CANCEL)
    world.run(2)
    running = [known for known in partitions if world.cluster.partitions[known].target]
    assert len(running) == 2
    assert world.run_until_ended().outcomes == "ccc"


def test_a_paused_plan_begins_nothing_until_it_is_resumed() -> None:
    world = MoverWorld(settings=MoverSettings(moves_per_broker=1))
    partitions = [world.add("orders", number, [1, 3]) for number in range(3)]
    world.submit([world.planned(partition, [2, 3]) for partition in partitions])
    world.run(1)
    world.ask(RequestKind.PAUSE)
    world.run(60)
    assert world.record().state is PlanState.PAUSED
    assert world.record().outcomes.count(".") == 2
    world.ask(RequestKind.RESUME)
    assert world.run_until_ended().outcomes == "ddd"


def test_moves_begin_in_the_hours_of_the_plan_and_are_undone_after_them() -> None:
    world = MoverWorld()
    midnight_ms = 1_700_006_400_000
    world.clock.advance_ms(midnight_ms - world.clock.now_ms())
    partition = world.add("orders", 0, [1, 3], 800 * MEGABYTE)
    world.submit([world.planned(partition, [2, 3])], hours=Hours(1, 2, undo=True))
    world.run(50)
    assert not world.record().active
    world.run(30)
    assert world.cluster.partitions[partition].target == [2, 3]
    world.run(60)
    assert world.cluster.partitions[partition].replicas == [1, 3]
    assert world.record().outcomes == "."
    world.clock.advance_ms(24 * 3600_000 - 90_000)
    world.cluster.partitions[partition].size_bytes = world.record().rate_bytes_per_s or 0
    assert world.run_until_ended().outcomes == "d"


def test_a_target_without_room_gets_nothing_and_the_plan_ends() -> None:
    world = MoverWorld(settings=MoverSettings(give_up_ms=20_000))
    partition = world.add("orders", 0, [1, 3], 100 * MEGABYTE)
    small = world.add("orders", 1, [1, 3], MEGABYTE)
    for disk in world.cluster.brokers[2].disks.values():
        disk.total_bytes = 90 * MEGABYTE
    world.submit([world.planned(partition, [2, 3]), world.planned(small, [2, 3])])
    record = world.run_until_ended()
    assert record.outcomes == "fd"
    assert "room" in record.reasons[0]


def test_a_disk_that_fails_has_moves_to_it_undone_and_holds_up_no_others(world: MoverWorld) -> None:
    partitions = [world.add("orders", number, [1, 3], 300 * MEGABYTE) for number in range(3)]
    world.submit([world.planned(p, [2, 3], [f"/d{p.number % 2}", ""]) for p in partitions])
    world.run(3)
    world.cluster.brokers[2].disks["/d0"].offline = True
    record = world.run_until_ended(seconds_max=150)
    assert record.outcomes == "fdf"
    assert all("/d0" in record.reasons[number] for number in (0, 2))
    assert [world.cluster.partitions[p].replicas for p in partitions] == [[1, 3], [2, 3], [1, 3]]
    assert world.leftovers() == []


def test_a_broker_that_stops_is_waited_for(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3], 100 * MEGABYTE)
    world.submit([world.planned(partition, [2, 3])])
    world.run(3)
    world.cluster.stop_broker(2)
    world.run(300)
    assert world.record().outcomes == "a"
    world.cluster.start_broker(2)
    assert world.run_until_ended().outcomes == "d"


def test_what_somebody_else_changes_is_left_to_them(world: MoverWorld) -> None:
    cancelled, moved = (world.add("orders", number, [1, 3], 200 * MEGABYTE) for number in range(2))
    gone = world.add("audit", 0, [1, 3], 200 * MEGABYTE)
    world.submit([world.planned(partition, [2, 3]) for partition in (cancelled, moved, gone)])
    world.run(5)
    world.administration.reassign({cancelled: None, moved: [4, 1]})
    world.cluster.remove_topic("audit")
    record = world.run_until_ended()
    assert record.outcomes == "fff"
    assert set(world.cluster.partitions[cancelled].replicas) == {1, 3}
    assert world.cluster.partitions[moved].target in ([4, 1], None)
    assert [text for text in world.leftovers() if "throttled" in text] == []


def test_a_topic_grows_while_it_is_moved(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3], 50 * MEGABYTE)
    world.submit([world.planned(partition, [2, 3])])
    world.run(3)
    world.add("orders", 1, [4, 1])
    assert world.run_until_ended().outcomes == "d"
    assert world.cluster.partitions[Partition("orders", 1)].replicas == [4, 1]


def test_requests_without_the_token_are_refused_and_stay_as_a_trace(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3])
    request = world.submit([world.planned(partition, [2, 3])], token="guessed")
    world.run(2)
    assert world.answer(request) == "forbidden"
    assert world.fleet_store.current() is None
    assert world.store.children("/fleet/id-fleet/plans") == ()


def test_a_node_that_is_no_request_hinders_nobody(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3])
    world.store.commit([Create("/fleet/id-fleet/requests/a", b"not a request")])
    world.submit([world.planned(partition, [2, 3])])
    assert world.run_until_ended().outcomes == "d"
    assert len(world.fleet_store.requests()) == 1


def test_a_plan_by_a_name_that_no_node_can_have_is_refused(world: MoverWorld) -> None:
    request = world.ask(RequestKind.SUBMIT, plan_id="../lease", moves_digest="x")
    world.run(1)
    assert world.answer(request) == "definition"


def test_old_requests_and_requests_for_other_clusters_are_refused(world: MoverWorld) -> None:
    old = world.ask(RequestKind.PAUSE)
    world.clock.advance_ms(2 * 3_600_000)
    other = MoveRequest("other", RequestKind.PAUSE, "elsewhere", world.clock.now_ms(), "ada")
    world.fleet_store.ask(signed(other, TOKEN))
    world.run(1)
    assert world.answer(old) == "refused"
    assert world.answer("other") == "refused"


def test_moves_that_were_changed_after_they_were_signed_are_refused(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3])
    move = world.planned(partition, [2, 3])
    world.fleet_store.write_moves("plan", b"[]")
    request = world.ask(RequestKind.SUBMIT, plan_id="plan", moves_digest="of others")
    world.run(2)
    assert world.answer(request) == "corrupted"
    assert move.before == (1, 3)


@pytest.mark.parametrize("what", ["moved", "absent broker", "dead broker", "racks", "running", "factor"])
def test_plans_that_do_not_fit_the_cluster_are_refused_before_anything_is_set(
    world: MoverWorld, what: str
) -> None:
    partition = world.add("orders", 0, [1, 3])
    moves = {
        "absent broker": [world.planned(partition, [99, 3])],
        "racks": [world.planned(partition, [1, 2])],
        "factor": [world.planned(partition, [1])],
    }.get(what, [world.planned(partition, [2, 3])])
    if what == "moved":
        world.cluster.partitions[partition].replicas = [1, 4]
    elif what == "dead broker":
        world.cluster.stop_broker(2)
    elif what == "running":
        world.cluster.partitions[partition].stuck = True
        world.administration.reassign({partition: [1, 4]})
        moves[0] = moves[0].__class__("orders", 0, (1, 4, 3), (2, 3, 4), ("", "", ""), ("", "", ""), 1)
    request = world.submit(moves)
    world.run(2)
    assert world.answer(request) == {"moved": "plan_outdated", "factor": "definition"}.get(what, _REFUSED)
    assert world.fleet_store.current() is None
    assert not world.cluster.configs


@pytest.mark.parametrize(
    "right",
    [
        *(f"{right} on the cluster" for right in ("Alter", "Describe", "AlterConfigs", "DescribeConfigs")),
        *(f"{right} on topic orders" for right in ("AlterConfigs", "DescribeConfigs")),
    ],
)
def test_a_plan_for_which_a_right_is_missing_is_refused_before_anything_is_set(
    world: MoverWorld, right: str
) -> None:
    partition = world.add("orders", 0, [1, 3])
    world.cluster.missing_rights.add(right)
    request = world.submit([world.planned(partition, [2, 3])])
    world.run(2)
    answer = world.fleet_store.request(request).answer
    assert answer.code == "forbidden"
    assert f"the rights {right}" in answer.message
    assert world.fleet_store.current() is None
    assert not world.cluster.configs
    world.cluster.missing_rights.clear()
    world.submit([world.planned(partition, [2, 3])], plan_id="again")
    assert world.run_until_ended("again").outcomes == "d"


def test_a_second_plan_waits_for_the_end_of_the_first(world: MoverWorld) -> None:
    partition = world.add("orders", 0, [1, 3], 100 * MEGABYTE)
    move = world.planned(partition, [2, 3])
    world.submit([move])
    world.run(2)
    assert world.answer(_again(world, [move], "second")) == "refused"
    world.run_until_ended()
    back = world.planned(partition, [1, 3])
    _again(world, [back], "third")
    assert world.run_until_ended("third").outcomes == "d"


def _again(world: MoverWorld, moves: list, plan_id: str) -> str:  # type: ignore[type-arg]
    request = world.submit(moves, plan_id=plan_id)
    world.run(1)
    return request
