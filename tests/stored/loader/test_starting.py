"""A loader whose sink does not answer when it starts: it waits, says what for, and begins or ends as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotLeader, NotYet, Unavailable
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import Loader, LoaderBatch
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_STOPPED
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.servers.limits import HttpLimits
from rtolap.stack.ports import free_port
from rtolap.stored.loader.http import LoaderEndpoint
from rtolap.stored.loader.job import JobConfig, JobResources, write_config
from rtolap.stored.loader.records.rejects import FileBox
from rtolap.stored.loader.runner import run
from rtolap.stored.loader.starting import Starting
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs, LoadJobState
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink
from tests.support.waiting import until

TOKEN = "the cluster's"


def nobody() -> Any:
    raise AssertionError("the loader has neither an application nor partitions")


class World:
    """A loader `j` of topic `t` into d.t, whose sink is away. `run` runs it in this thread, while `client`
    acts in another one."""

    def __init__(self, folder: Path) -> None:
        self.ledger = open_ledger(folder / "ledger.db")
        self.jobs, self.port = LoadJobs(self.ledger), free_port()
        self.broker, self.sink = MemoryBroker(), MemorySink()
        self.broker.create("t", 1)
        self.broker.append("t", OutRecord(b'{"k": 1}', partition=0))
        self.sink.tables["d", "t"] = TableSchema(properties=(SchemaColumn("k", "BIGINT"),))
        self.sink.down = True
        batch = LoaderBatch(rows=10, interval_ms=20)
        loader = Loader(name="j", topic="t", database="d", table="t", batch=batch)
        self.jobs.create("j", "d", "t", "t", write_config(JobConfig(loader)))
        self._folder = folder
        self._errors: list[BaseException] = []

    def run(self, act: Callable[[LoaderClient], None]) -> int:
        def acting() -> None:
            with LoaderClient(f"http://127.0.0.1:{self.port}", TOKEN) as client:
                with ThreadPoolExecutor(1) as pool:
                    acted = pool.submit(act, client)
                if (error := acted.exception()) is not None:
                    self._errors.append(error)
                    self.jobs.change_state("j", LoadJobEvent.STOP, "the test has failed")

        thread = threading.Thread(target=acting, daemon=True)
        thread.start()
        box = FileBox(self._folder / "rejects.jsonl")
        resources = JobResources(
            self.jobs,
            OffsetsRecords(self.ledger),
            self.sink,
            lambda loader: MemoryConsumer(self.broker, loader.topic),
            box,
            SystemClock(),
        )
        code = run(
            "j",
            resources,
            LoaderEndpoint("127.0.0.1", "127.0.0.1", self.port, TOKEN, HttpLimits()),
            open_watermarks=lambda name: nobody(),
            partition_session=lambda sink, partitions: nobody(),
        )
        thread.join(30)
        box.close()
        if self._errors:
            raise self._errors[0]
        return code


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.ledger.close()


def phase(client: LoaderClient) -> str:
    try:
        return client.status().phase
    except Unavailable:
        return "no endpoint yet"


def waits(client: LoaderClient) -> bool:
    return phase(client) == "waiting" and bool(client.status().last_error)


def test_a_loader_says_what_it_waits_for_and_begins_once_the_sink_answers(world: World) -> None:
    def act(client: LoaderClient) -> None:
        until(lambda: waits(client))
        shown = client.status()
        assert (shown.state, shown.alive) == ("RUNNING", True)
        assert shown.last_error == "waits for: the sink is down"
        world.sink.down = False
        until(lambda: bool(world.sink.rows("d", "t")))
        assert phase(client) == "loading"
        client.want("stop")

    assert world.run(act) == EXIT_STOPPED


def test_a_loader_that_waits_is_stopped_at_once(world: World) -> None:
    def act(client: LoaderClient) -> None:
        until(lambda: waits(client))
        assert client.want("stop").state == "STOPPED"

    assert world.run(act) == EXIT_STOPPED
    assert world.jobs.get("j").state is LoadJobState.STOPPED


def test_a_loader_that_waits_follows_a_stop_in_the_ledger_and_fails_for_what_does_not_pass(
    world: World,
) -> None:
    def stop(client: LoaderClient) -> None:
        until(lambda: waits(client))
        world.jobs.change_state("j", LoadJobEvent.STOP, "by somebody else")

    assert world.run(stop) == EXIT_STOPPED

    def drop_the_table(client: LoaderClient) -> None:
        until(lambda: waits(client))
        del world.sink.tables["d", "t"]
        world.sink.down = False

    world.port = free_port()
    assert world.run(drop_the_table) == EXIT_FAILED
    assert "table_unusable" in world.jobs.get("j").reason


def test_a_lease_of_another_process_is_waited_for_a_while_and_a_lost_one_not_at_all() -> None:
    clock = ManualClock()
    starting = Starting(threading.Event(), clock, take_s=10)
    tries = []

    def owned() -> None:
        tries.append(starting.waits_for)
        clock.advance_ms(6_000)
        raise NotYet("job j is p1's")

    with pytest.raises(NotYet):
        starting.begun(owned)
    assert tries == ["", "job j is p1's"]

    def lost() -> None:
        raise NotLeader("it is p2's")

    with pytest.raises(NotLeader):
        starting.begun(lost)
