"""How long statements over a cube go without an answer when one process dies, stands still or starts again.

Each figure is printed. The bounds are those of an idle machine, with room for what else it may be busy with.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from confluent_kafka.cimpl import NewTopic
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.services import Services, wait_for
from tests.support.kafka_topics import create_topic
from tests.support.query.prices import define_prices
from tests.support.waiting import patience_s
from tests.support.watermarks.gaps import Asking

pytestmark = [pytest.mark.integration]

EVENTS = 500
DEATH_S_MAX = 1.0  # without an answer, after one process dies while its peer lives; on an idle machine
RESTART_S_MAX = 3.0  # of ZooKeeper; on an idle machine
BUSY = 3  # times as long where other tests run beside this one; what did not hold took 4, 28 and 30 s
ENDS_S_MAX = 20.0  # a call to a receiver lasts up to 30 s; it is given up, not waited for
STRETCH = 20  # healthy gaps that are added to a bound
SETTLED_ANSWERS = 20


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, zookeeper: str, kafka: str) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("available")
    root = f"/available-{uuid.uuid4().hex}"
    one = Services(folder, zookeeper=zookeeper, root=root, kafka=kafka, coordinators=1)
    try:
        one.start_coordinators()
        for name in ("r1", "r2"):
            one.start_receiver(name, "both", "--checkpoint-interval-s", "0.5", "--idle-after-s", "60")
        one.start_query()
        one.coordinator.put_replica_set("both", ["r1", "r2"])
        wait_for("the receivers live", lambda: len(one.coordinator.receivers()) == 2)
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def cube(services: Services, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    name = f"available_{uuid.uuid4().hex[:8]}"
    create_topic(kafka, NewTopic(name, 1, 1))
    folder = tmp_path_factory.mktemp("prices")
    rows = [{"ts": "2013-11-03T00:10:00Z", "kind": "pen", "price": f"{n}.25"} for n in range(EVENTS)]
    (folder / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for arguments in (
        ("create", str(define_prices(folder, name)), "--enable"),
        ("produce", str(folder / f"{name}.ndjson")),
    ):
        command = [sys.executable, "-m", "rtolap.cli.main", *arguments]
        subprocess.run(
            command, env=services.environment, check=True, capture_output=True, timeout=patience_s(60)
        )
    return name


@pytest.fixture
def asking(services: Services, cube: str) -> Iterator[Asking]:
    def ask() -> None:
        answer = services.sql(f"select count(*), sum(price) from {cube}")
        assert answer["rows"] == [[EVENTS, f"{sum(range(EVENTS)) + EVENTS // 4}.00"]]

    def all_is_read() -> bool:
        return bool(services.sql(f"select count(*) from {cube}")["rows"] == [[EVENTS]])

    wait_for("all is read", all_is_read)
    with Asking(ask, httpx.HTTPError) as running:
        yield running


def answered(asking: Asking, what: str) -> None:
    """Answers come one after the other again."""
    before = asking.answers
    try:
        wait_for(what, lambda: asking.answers > before + SETTLED_ANSWERS)
    except AssertionError as error:
        error.add_note(
            f"{asking.answers - before} answers; (gap, refusals): {asking.take()}; {asking.wrong!r}"
        )
        raise


def settle(asking: Asking) -> float:
    """Once they do, the longest time between two of them, in seconds."""
    answered(asking, "answers come")
    asking.take()
    answered(asking, "answers come")
    healthy_s, refused = asking.take()
    assert not refused
    return healthy_s


def holds(asking: Asking, what: str, bound_s: float, healthy_s: float) -> None:
    answered(asking, f"answers come after {what}")
    gap_s, refused = asking.take()
    allowed_s = BUSY * bound_s + STRETCH * healthy_s
    print(
        f"{what}: {gap_s:.2f} s without an answer, {healthy_s:.2f} s while nothing is wrong; {dict(refused)}"
    )
    assert gap_s < allowed_s, (what, refused)


def receiver_asked(services: Services, cube: str) -> str:
    """Whom the query service prefers by now."""
    plan = dict(services.sql(f"explain select count(*) from {cube}")["rows"])
    return str(plan["receivers"]).rpartition(" ")[2]


def holds_all(services: Services, cube: str, name: str, since_ms: int) -> bool:
    """As it has said since then."""
    known = {receiver.receiver_id: receiver for receiver in services.coordinator.receivers()}
    said = known.get(name)
    if said is None or (said.last_seen_ms or 0) <= since_ms or cube not in said.cubes:
        return False
    return sum(report.position for report in said.cubes[cube].partitions.values()) == EVENTS


def test_each_receiver_may_die_also_the_one_whose_peer_was_away_before(
    services: Services, cube: str, asking: Asking
) -> None:
    healthy_s = settle(asking)
    first = receiver_asked(services, cube)
    for name in (first, "r2" if first == "r1" else "r1"):
        services.kill(name)
        holds(asking, f"{name} was killed", DEATH_S_MAX, healthy_s)
        since_ms = int(time.time() * 1000)
        services.start_again(name)
        wait_for(f"{name} holds all again", partial(holds_all, services, cube, name, since_ms))
        asking.take()


def test_a_receiver_that_stands_still_is_passed_by(services: Services, cube: str, asking: Asking) -> None:
    healthy_s = settle(asking)
    name = receiver_asked(services, cube)
    services.signal(name, signal.SIGSTOP)
    try:
        holds(asking, f"{name} was stopped", DEATH_S_MAX, healthy_s)
    finally:
        services.signal(name, signal.SIGCONT)


def test_a_query_service_ends_while_a_receiver_that_it_has_asked_stands_still(
    services: Services, cube: str, asking: Asking
) -> None:
    settle(asking)
    name = receiver_asked(services, cube)
    services.signal(name, signal.SIGSTOP)
    try:
        answered(asking, "the other receiver is asked")
        services.stop("query", within_s=ENDS_S_MAX)
    finally:
        services.signal(name, signal.SIGCONT)
        services.start_query()


def test_zookeeper_may_start_again(
    services: Services, asking: Asking, zookeeper_server: ManagedProcess
) -> None:
    healthy_s = settle(asking)
    zookeeper_server.kill()
    holds(asking, "ZooKeeper was killed", RESTART_S_MAX, healthy_s)
    zookeeper_server.start()
    holds(asking, "ZooKeeper was started", RESTART_S_MAX, healthy_s)
    wait_for("the coordinator leads again", lambda: services.leading_coordinator() is not None)
