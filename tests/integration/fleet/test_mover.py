"""Plans carried out on real brokers, while records are written and read all the time and recounted."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from rtolap.base.errors import NotFound, PlanChanged, PlanOutdated
from rtolap.cli.main import app
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.states import PlanEvent, PlanState
from rtolap.fleet.moves.submitting import planned_moves
from rtolap.fleet.planning.drain import plan_remove_disk
from rtolap.fleet.planning.placement import everywhere
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.plan_file import kafka_json, load_plan, plan_digest
from rtolap.fleet.snapshot.file import save
from rtolap.kafka.administration.values import ALL_BROKERS, LEADER_RATE, LOG_DIRS_RATE, Partition
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, RestartPolicy
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.ports import free_port
from typer.testing import CliRunner

from tests.integration.fleet.conftest import world_of
from tests.support.agent_harness import running_agent
from tests.support.fleet.agents import Agents
from tests.support.fleet.brokers import Brokers
from tests.support.fleet.kafka_tools import verify_plan
from tests.support.fleet.moved_fleet import FAST, SLOW, MovedFleet, moved_fleet
from tests.support.fleet.mover_process import METRIC, SERVE, MoverProcess
from tests.support.fleet.small_disk import SmallDisk, small_disk
from tests.support.scrape import Scrape, scrape
from tests.support.waiting import until

pytestmark = pytest.mark.integration

PARTITIONS = 8
SMALL_DISK_BYTES = 64_000_000
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rtolap-moves-") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def third_disk(folder: Path) -> Iterator[SmallDisk]:
    """The second log directory of broker 3."""
    with small_disk(folder / "broker3" / "d1", SMALL_DISK_BYTES) as disk:
        yield disk


@pytest.fixture(scope="module")
def agents(folder: Path) -> Agents:
    return Agents(folder / "agents")


@pytest.fixture(scope="module")
def three(folder: Path, third_disk: SmallDisk, agents: Agents, java: JavaArtifacts) -> Iterator[Brokers]:
    """Any of them may be killed: each is a controller too. Who kills one starts it again."""
    with Brokers(folder, java, controllers=(1, 2, 3), jvm_options=agents.jvm_options) as started:
        yield started


@pytest.fixture
def fleet(three: Brokers, zookeeper: str, unique_name: str, tmp_path: Path) -> Iterator[MovedFleet]:
    """All of a topic lies at the brokers 1 and 2; nothing is at broker 3."""
    replicas = [[1, 2] if number % 2 else [2, 1] for number in range(PARTITIONS)]
    with moved_fleet(three, world_of(three, unique_name), zookeeper, tmp_path, replicas) as made:
        yield made


def test_an_unbalanced_fleet_becomes_balanced_under_records_that_are_written_and_read(
    fleet: MovedFleet, java: JavaArtifacts, tmp_path: Path
) -> None:
    """Kafka's own tool, which reads the same plan, says that it was carried out."""
    before = fleet.used_bytes()
    assert before["3:d0"] + before["3:d1"] == 0
    plans: list[Plan] = []

    def balance() -> None:
        plan_id, plan = fleet.submit(FAST)
        plans.append(plan)
        record = fleet.wait_ended(plan_id)
        assert set(record.outcomes) == {"d"}

    fleet.recounted(balance)
    file = tmp_path / "kafka.json"
    file.write_bytes(kafka_json(plans[0]))
    told = verify_plan(java, fleet.brokers.cluster, file)
    assert told.count("is completed") >= len(plans[0])
    assert "There is no active reassignment" not in told
    assert "still in progress" not in told
    after = fleet.used_bytes()
    assert max(after.values()) < max(before.values())
    assert min(after.values()) > 0.5 * max(after.values())
    fleet.check_nothing_left()


def test_a_plan_that_is_cancelled_in_the_middle_leaves_everything_as_it_was(fleet: MovedFleet) -> None:
    ended: list[tuple[PlanRecord, Plan]] = []
    grown: list[tuple[int, ...]] = []

    def cancel() -> None:
        plan_id, plan = fleet.submit(SLOW)
        fleet.wait_moving()
        assert fleet.throttles()
        until(lambda: grow(fleet, grown), "a partition more", poll_s=0.1)  # while the topic is moved
        fleet.requests.ask(RequestKind.CANCEL, reason="too slow")
        ended.append((fleet.wait_ended(plan_id), plan))

    fleet.recounted(cancel)
    record, plan = ended[0]
    assert "c" in record.outcomes
    now = fleet.replicas()
    for move, outcome in zip(planned_moves(plan), record.outcomes, strict=True):
        assert outcome in "cd"
        assert now[move.number] == (move.before if outcome == "c" else move.after)
    assert now[PARTITIONS:] == grown
    fleet.check_nothing_left()


def grow(fleet: MovedFleet, grown: list[tuple[int, ...]]) -> bool:
    """Kafka wants as many replicas as the first partition has, one more while that moves."""
    admin = AdminClient({"bootstrap.servers": fleet.brokers.cluster.servers})
    for brokers in ((1, 3), (1, 3, 2)):
        more = NewPartitions(fleet.topic, PARTITIONS + 1, replica_assignment=[list(brokers)])
        try:
            admin.create_partitions([more])[fleet.topic].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICA_ASSIGNMENT:
                raise
        else:
            grown.append(brokers)
            return True
    return False


def test_a_mover_that_is_killed_again_and_again_is_restarted_by_the_agent_and_ends_the_plan(
    fleet: MovedFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fleet.mover.kill()  # the agent's is the only one
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)
    port = free_port()
    spec = ProcessSpec(
        generation=1,
        argv=("rtolap", *SERVE, "--metrics-port", str(port)),
        restart=RestartPolicy(max=9, backoff_s=0.1, backoff_s_max=0.1),
    )
    page = f"http://127.0.0.1:{port}/metrics"
    token = Path(fleet.env["RTOLAP_TOKEN_FILE"]).read_text()
    with running_agent(tmp_path / "agent") as agent, agent.client() as client:
        client.ensure("fleet.default", spec)

        def kill() -> None:
            plan_id, _ = fleet.submit(SLOW)
            until(fleet.throttles, "the throttle", poll_s=0.1)
            kill_process(client, "fleet.default")
            fleet.wait_moving()
            kill_process(client, "fleet.default")
            fleet.throttle(FAST)
            until(lambda: "d" in fleet.record(plan_id).outcomes, "a move that is done", poll_s=0.1)
            kill_process(client, "fleet.default")
            assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

        fleet.recounted(kill)
        status = client.get("fleet.default")
        assert (status.state, status.restarts) == ("RUNNING", 3)

        def leads() -> bool:
            with suppress(httpx.TransportError):  # it was started again a moment ago
                return scrape(page, token)(f"{METRIC}_leading") == 1
            return False

        until(leads, "the last one leads")
    fleet.check_nothing_left()


def kill_process(client: AgentClient, key: str) -> None:
    """Kill it, and wait until the agent has started it again."""
    pid = client.get(key).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: client.get(key).pid not in (None, pid), f"another {key}", poll_s=0.1)


def test_of_two_movers_one_works_when_the_first_is_stopped_and_when_the_second_is_killed(
    fleet: MovedFleet,
) -> None:
    first = fleet.mover
    until(lambda: leads(first), "the first mover")
    with fleet.another_mover() as second:
        until(lambda: stands_by(second), "the second mover")

        def stop_and_kill() -> None:
            with never_both(first, second):
                plan_id, _ = fleet.submit(SLOW)
                fleet.wait_moving()
                assert answered(second) == 0
            first.pause()  # for longer than its session
            until(lambda: leads(second), "a mover in place of the first")
            first.go_on()
            until(lambda: stands_by(first), "the first finds that it has lost the lease")
            with never_both(first, second):
                assert fleet.world.administration.running_reassignments()
                assert "a" in fleet.record(plan_id).outcomes
                second.kill()
                until(lambda: leads(first), "the first has the lease again")
                fleet.throttle(FAST)
                record = fleet.wait_ended(plan_id)
            assert set(record.outcomes) == {"d"}
            assert [entry.event for entry in record.history] == [
                *(PlanEvent.START, PlanEvent.THROTTLE, PlanEvent.MOVES_ENDED, PlanEvent.RELEASED)
            ]

        fleet.recounted(stop_and_kill)
    fleet.check_nothing_left()


def leads(mover: MoverProcess) -> bool:
    page = page_of(mover)
    return page is not None and page(f"{METRIC}_leading") == 1


def stands_by(mover: MoverProcess) -> bool:
    """It has tried to work at least once."""
    page = page_of(mover)
    return page is not None and page(f"{METRIC}_leading") == 0 and page(f"{METRIC}_stepped_seconds") > 0


def answered(mover: MoverProcess) -> float:
    page = page_of(mover)
    assert page is not None
    return page(f"{METRIC}_requests_total")


def page_of(mover: MoverProcess) -> Scrape | None:
    """None while it does not answer."""
    try:
        return mover.metrics()
    except httpx.TransportError:
        return None


@contextmanager
def never_both(*movers: MoverProcess) -> Iterator[None]:
    """Look again and again, in a thread: never do two of them say that they work, and one does at times."""
    at_work: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            at_work.append(sum(leads(mover) for mover in movers))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)
    assert set(at_work) <= {0, 1}
    assert 1 in at_work


def test_moves_give_way_while_writes_take_longer_than_the_limit_and_come_back_when_they_do_not(
    fleet: MovedFleet, agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By limits that every write is above and below, on whatever machine."""
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)
    sources = agents.write_sources(tmp_path / "sources.yaml", fleet.brokers)
    options = ("--sources", str(sources), "--produce-every-s", "1", "--produce-p99-ms-max")
    fleet.mover.kill()

    def told() -> str:
        return " ".join(command("moves").stderr.split())

    def give_way() -> None:
        with fleet.another_mover(*options, "0.1") as mover:
            # so slow that one move keeps a broker busy: others wait while times are read
            plan_id, _ = fleet.submit(SLOW // 10)
            falling: list[dict[int, int]] = []
            until(lambda: no_move_begins(note_windows(fleet, plan_id, falling)), lambda: falling)
            fleet.throttle(FAST)  # what is under way ends
            until(lambda: not note_windows(fleet, plan_id, falling).active, lambda: fleet.record(plan_id))
            assert "." in fleet.record(plan_id).outcomes
            # a look that has seen too few writes of a broker does not name it; the next one does
            until(
                lambda: all(f"on broker {each}, limit 0.1: no move begins" in told() for each in (1, 2)), told
            )
            assert mover.metrics()(f"{METRIC}_produce_p99_seconds", broker="1") > 0.0001
            mover.kill()
        for before, after in pairwise([{1: 5, 2: 5}, *falling]):
            for broker, moves_max in after.items():
                # after a look with too few writes it is one
                assert moves_max in {before.get(broker, 5), 1} or moves_max <= before.get(broker, 5) // 2
        with fleet.another_mover(*options, "1000000"):
            rising: list[dict[int, int]] = []
            until(
                lambda: note_windows(fleet, plan_id, rising).state is PlanState.ENDED,
                lambda: (fleet.record(plan_id), rising),
                poll_s=0.05,
            )
        assert set(fleet.record(plan_id).outcomes) == {"d"}
        for before, after in pairwise(rising):  # it begins with what the mover before has left
            assert all(moves_max >= before.get(broker, 0) for broker, moves_max in after.items())
        assert max(rising[0][broker] for broker in (1, 2)) <= 1
        assert min(rising[-1][broker] for broker in (1, 2)) >= 1

    fleet.recounted(give_way)
    fleet.check_nothing_left()


def note_windows(fleet: MovedFleet, plan_id: str, seen: list[dict[int, int]]) -> PlanRecord:
    """Note the moves that each broker may have, where they have changed."""
    record = fleet.record(plan_id)
    if record.produce_latency is not None:
        windows = {broker: known.moves_max for broker, known in record.produce_latency.windows.items()}
        if windows and (not seen or seen[-1] != windows):
            seen.append(windows)
    return record


def no_move_begins(record: PlanRecord) -> bool:
    """Every move of the plan is led by the first or the second broker."""
    latency = record.produce_latency
    return latency is not None and all(latency.moves_max(broker, 5) == 0 for broker in (1, 2))


def test_a_broker_that_stops_in_the_middle_is_waited_for_and_a_throttle_is_changed_meanwhile(
    fleet: MovedFleet,
) -> None:
    def stop() -> None:
        plan_id, _ = fleet.submit(SLOW)
        fleet.wait_moving()
        fleet.brokers.servers[3].kill()
        fleet.brokers.wait_alive((1, 2))
        fleet.requests.ask(RequestKind.PAUSE)
        fleet.throttle(FAST)
        until(lambda: fleet.throttles()[str(ALL_BROKERS)][LEADER_RATE] == str(FAST), "the throttle")
        fleet.requests.ask(RequestKind.RESUME)
        fleet.brokers.servers[3].start()
        fleet.brokers.wait_alive((1, 2, 3))
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    fleet.recounted(stop)
    fleet.check_nothing_left()


def test_a_throttle_below_what_is_written_is_named_and_a_higher_one_ends_the_plan(
    fleet: MovedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)

    def change() -> None:
        plan_id, _ = fleet.submit(5_000)
        needed: list[int | None] = [None]

        def is_named() -> bool:
            needed[0] = fleet.status(plan_id).throttle_needed_bytes_per_s
            return needed[0] is not None

        until(is_named, lambda: f"a throttle that would do: {fleet.record(plan_id)}", poll_s=0.2)
        assert needed[0] is not None
        assert 5_000 < needed[0] < FAST
        assert "a" in fleet.record(plan_id).outcomes
        told = " ".join(command("moves").stderr.split())
        assert f"written as fast as it is copied, a second: {fleet.topic}:" in told
        advice = "the throttle of 4.9 KiB a second keeps the plan from its end: `rtolap fleet throttle"
        assert advice in told
        fleet.throttle(FAST)
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    fleet.recounted(change, value_bytes=2_000)
    fleet.check_nothing_left()


def test_a_controller_that_is_killed_in_the_middle_hinders_nobody(fleet: MovedFleet) -> None:
    brokers = fleet.brokers

    def kill() -> None:
        plan_id, _ = fleet.submit(SLOW)
        fleet.wait_moving()
        controller = fleet.world.administration.describe_cluster().controller
        brokers.servers[controller].kill()
        brokers.wait_alive(set(brokers.ids) - {controller})
        assert fleet.world.administration.describe_cluster().controller != controller
        brokers.servers[controller].start()
        fleet.throttle(FAST)
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    fleet.recounted(kill)
    fleet.check_nothing_left()


def test_a_disk_that_fills_under_moves_has_them_undone_and_all_others_go_on(
    fleet: MovedFleet, third_disk: SmallDisk
) -> None:
    if third_disk.missing is not None:
        pytest.skip(third_disk.missing)
    path = str(third_disk.path)
    before = fleet.replicas()
    ended: list[tuple[PlanRecord, Plan]] = []

    def fill() -> None:
        plan_id, plan = fleet.submit(SLOW)
        until(lambda: fleet.used_bytes()["3:d1"] > 100_000, "a copy on the small disk", poll_s=0.1)
        third_disk.fill()
        until(lambda: is_offline(fleet, path), "a log directory that is offline", poll_s=0.2)
        fleet.throttle(FAST)
        ended.append((fleet.wait_ended(plan_id), plan))

    try:
        fleet.recounted(fill)
        fleet.check_nothing_moves()
        record, plan = ended[0]
        now = fleet.replicas()
        for number, (move, outcome) in enumerate(zip(planned_moves(plan), record.outcomes, strict=True)):
            to_the_full_disk = (3, path) in zip(move.after, move.log_dirs, strict=True)
            assert outcome in ("df" if to_the_full_disk else "d"), record
            assert now[move.number] == (before[move.number] if outcome == "f" else move.after)
            if outcome == "f":
                assert path in record.reasons[number]
        assert "f" in record.outcomes
    finally:
        third_disk.empty()
        fleet.brokers.servers[3].kill()
        fleet.brokers.servers[3].start()
        fleet.brokers.wait_alive(fleet.brokers.ids)
    fleet.check_nothing_left()


def is_offline(fleet: MovedFleet, path: str) -> bool:
    told = fleet.world.administration.describe_log_dirs([3])[3]
    return any(log_dir.offline for log_dir in told.log_dirs if log_dir.path == path)


def test_a_disk_is_removed_by_the_plan_of_the_command_and_holds_no_replica_afterwards(
    fleet: MovedFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)
    path = next(path for path in held_by_disks(fleet, 1) if path.endswith("d1"))
    assert any(topic == fleet.topic for topic, _ in held_by_disks(fleet, 1)[path])
    snapshot, file = tmp_path / "snapshot", tmp_path / "plan.json"

    def remove() -> None:
        # the first consumer of a cluster has it made, on any disk
        until(lambda: OFFSETS in fleet.world.administration.describe_topics(), OFFSETS)
        save(fleet.snapshot(), snapshot)
        done = command("plan", "remove-disk", f"1:{path}", "--snapshot", str(snapshot), "--out", str(file))
        assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
        plan_id, _ = fleet.submit(FAST, load_plan(file))
        assert set(fleet.wait_ended(plan_id).outcomes) == {"d"}

    fleet.recounted(remove)
    until(lambda: not held_by_disks(fleet, 1)[path], lambda: held_by_disks(fleet, 1)[path])
    assert all(len(set(brokers)) == 2 for brokers in fleet.replicas())
    fleet.check_nothing_left()


def test_copies_between_the_disks_of_a_broker_are_cancelled_and_their_replicas_stay(
    fleet: MovedFleet,
) -> None:
    path = next(path for path in held_by_disks(fleet, 1) if path.endswith("d1"))
    partitions = [Partition(fleet.topic, number) for number in range(PARTITIONS)]
    ended: list[tuple[PlanRecord, Plan]] = []

    def copies() -> set[int]:
        told = fleet.world.administration.describe_log_dirs([1], partitions)[1]
        return {held.partition.number for each in told.log_dirs for held in each.replicas if held.future}

    def cancel() -> None:
        snapshot = fleet.snapshot()
        stays = replace(everywhere(snapshot), by_rule=np.isin(snapshot.brokers.ids, [1, 2])[None, :])
        plan = plan_remove_disk(snapshot, 1, path, limits=Limits(allowed=stays))
        assert plan.moves.between_disks.all()
        plan_id, _ = fleet.submit(SLOW, plan)
        until(copies, "a copy between the disks", poll_s=0.1)
        assert fleet.throttles()[str(ALL_BROKERS)][LOG_DIRS_RATE] == str(SLOW)
        fleet.requests.ask(RequestKind.CANCEL, reason="the disk was mended")
        ended.append((fleet.wait_ended(plan_id), plan))

    fleet.recounted(cancel)
    record, plan = ended[0]
    assert "c" in record.outcomes
    until(lambda: not copies(), copies, poll_s=0.1)
    there = {number for topic, number in held_by_disks(fleet, 1)[path] if topic == fleet.topic}
    for move, outcome in zip(planned_moves(plan), record.outcomes, strict=True):
        assert outcome in "cd"
        if move.topic == fleet.topic:
            assert (move.number in there) == (outcome == "c")
    fleet.check_nothing_left()


def held_by_disks(fleet: MovedFleet, broker: int) -> dict[str, set[tuple[str, int]]]:
    """All partitions, of whatever topic, by log directory."""
    told = fleet.world.administration.describe_log_dirs([broker])[broker]
    return {
        log_dir.path: {(held.partition.topic, held.partition.number) for held in log_dir.replicas}
        for log_dir in told.log_dirs
    }


def test_a_plan_is_made_submitted_and_watched_by_commands(
    fleet: MovedFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in fleet.env.items():
        monkeypatch.setenv(name, value)
    administration = fleet.world.administration
    partitions = [Partition(fleet.topic, number) for number in range(PARTITIONS)]
    assert administration.reassign(dict.fromkeys(partitions, (1, 2))) == {}

    def leaders() -> list[int]:
        administration.elect_preferred_leaders(partitions)
        return [p.leader for p in administration.describe_topics([fleet.topic])[fleet.topic].partitions]

    until(lambda: leaders() == [1] * PARTITIONS, "one leader of all")
    file = tmp_path / "plan.json"
    done = command("plan", "leaders", "--out", str(file))
    assert done.exit_code == 0, done.output
    digest = plan_digest(load_plan(file))
    assert isinstance(command("submit", str(file), "--digest", "0" * 12).exception, PlanChanged)
    submitted = command("submit", str(file), "--digest", digest[:12], "--reason", "one leads all", "--json")
    assert submitted.exit_code == 0, f"{submitted.output}\n{submitted.exception!r}"
    plan_id = json.loads(submitted.output)["plan"]
    until(lambda: json.loads(command("moves", "--json").output)["state"] == "ended", "the plan's end")
    told = json.loads(command("moves", plan_id, "--json").output)
    assert set(told["counts"]) == {"done"}
    assert sorted(leaders()) == [1] * (PARTITIONS // 2) + [2] * (PARTITIONS // 2)
    assert "one leads all" in command("moves", "--audit").output
    assert isinstance(command("submit", str(file)).exception, PlanOutdated)
    assert isinstance(command("pause").exception, NotFound)  # nothing runs
    assert isinstance(command("throttle", "1000000").exception, NotFound)
    fleet.check_nothing_left()


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["fleet", *arguments])
