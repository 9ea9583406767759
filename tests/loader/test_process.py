"""All roles at once, as threads of one process, with its door: pause, resume, stop, failure, a lost lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.ledger.database import Ledger
from rtolap.ledger.load_jobs import LoadJobs, LoadJobState
from rtolap.ledger.offsets import OffsetsRecords
from rtolap.loader.http import make_app
from rtolap.loader.job import JobConfig, write_config
from rtolap.loader.loader_metrics import measure
from rtolap.loader.memory_sink import MemorySink
from rtolap.loader.process import LoaderProcess
from rtolap.loader.rejects import FileBox
from rtolap.loader.status import status_of
from rtolap.loader.work import begin
from rtolap.model.loader import Loader, LoaderBatch, LoaderRejects
from rtolap.stream.consumer import OutRecord
from rtolap.stream.memory import MemoryConsumer
from rtolap.stream.memory_broker import MemoryBroker
from rtolap.wire.loader import API, EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED, LoaderStatus
from rtolap.wire.stream_load import SchemaColumn, TableSchema

TIMEOUT_S = 30.0
TOKEN = "the cluster's"


def wait(is_so: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


class Running:
    """A loader `j` of topic `t` into d.t, running in a thread."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
        self.jobs, self.records = LoadJobs(self.ledger), OffsetsRecords(self.ledger)
        self.broker, self.sink = MemoryBroker(), MemorySink()
        self.broker.create("t", 2)
        self.sink.tables["d", "t"] = TableSchema(properties=(SchemaColumn("k", "BIGINT", is_nullable="No"),))
        loader = Loader(
            name="j",
            topic="t",
            database="d",
            table="t",
            batch=LoaderBatch(rows=10, interval_ms=20),
            parallel=3,
            **changes,
        )
        self.jobs.create("j", "d", "t", "t", write_config(JobConfig(loader)))
        self.jobs.set_state("j", LoadJobState.RUNNING, "")
        self.box = FileBox(folder / "rejects.jsonl")
        work = begin(
            "j",
            "127.0.0.1:1/x",
            self.jobs,
            self.records,
            self.sink,
            lambda it: MemoryConsumer(self.broker, it.topic),
            self.box,
            SystemClock(),
        )
        self.process = LoaderProcess(work, commit_s=0.05)
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        metrics = Metrics("loader")
        measure(metrics, self.process, self.status)
        self.door = TestClient(make_app("j", TOKEN, metrics, self.status, self.want))
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    def _run(self) -> None:
        self.code = self.process.run()

    def status(self) -> LoaderStatus:
        asked_ms, ends = self.process.work.clock.now_ms(), self.process.work.log_ends()
        return status_of(self.jobs.get("j"), self.records.all("j"), ends, self.process, asked_ms)

    def want(self, state: LoadJobState) -> None:
        self.jobs.set_state("j", state, "by the door")
        self.process.follow()

    def post(self, change: str) -> httpx.Response:
        return self.door.post(f"{API}/{change}", headers=self.headers)

    def produce(self, numbers: range) -> None:
        for number in numbers:
            self.broker.append("t", OutRecord(b'{"k": %d}' % number, partition=number % 2))

    def keys(self) -> list[int]:
        return sorted(row["k"] for row in self.sink.rows("d", "t"))

    def ended(self) -> int | None:
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
        return self.code

    def close(self) -> None:
        self.process.stop()
        self.thread.join(TIMEOUT_S)
        self.box.close()
        self.ledger.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.close()


def test_records_arrive_and_the_status_says_so(running: Running) -> None:
    running.produce(range(100))
    wait(lambda: len(running.keys()) == 100)
    wait(lambda: running.status().lag_records == 0)
    shown = running.door.get(API, headers=running.headers).json()
    assert (shown["job"], shown["state"], shown["alive"], shown["phase"]) == ("j", "RUNNING", True, "loading")
    assert (shown["rows_loaded"], shown["rows_rejected"], shown["pending"]) == (100, 0, 0)
    assert shown["log_ends"] == {"0": 50, "1": 50} == shown["loaded"]
    assert shown["rows_per_s"] > 0
    assert abs(shown["event_ms_loaded"] - time.time() * 1000) < 60_000
    assert running.keys() == list(range(100))


def test_its_door_wants_the_token_and_counts_what_was_done(running: Running) -> None:
    running.produce(range(30))
    wait(lambda: len(running.keys()) == 30)
    assert running.door.get("/health").json()["job"] == "j"
    for path in (API, "/metrics"):
        assert running.door.get(path).status_code == 401
        assert running.door.get(path, headers={"Authorization": "Bearer guessed"}).status_code == 401
    assert running.door.post(f"{API}/stop").status_code == 401
    wait(lambda: running.status().rows_loaded == 30)
    page = running.door.get("/metrics", headers=running.headers).text
    assert 'rtolap_loader_rows_loaded_total{job="j"} 30.0' in page
    assert 'rtolap_loader_lag_records{job="j"} 0.0' in page


def test_a_paused_loader_reads_nothing_and_goes_on_where_it_was(running: Running) -> None:
    running.produce(range(20))
    wait(lambda: len(running.keys()) == 20)
    assert running.post("pause").json()["phase"] in ("pausing", "paused")
    wait(lambda: running.status().phase == "paused")
    running.produce(range(20, 40))
    found = running.status()
    assert (found.state, found.lag_records, found.pending) == ("PAUSED", 20, 0)
    assert running.keys() == list(range(20))
    assert running.post("resume").json()["state"] == "RUNNING"
    wait(lambda: len(running.keys()) == 40)
    assert running.keys() == list(range(40))


def test_a_stopped_loader_gives_the_job_back(running: Running) -> None:
    running.produce(range(20))
    wait(lambda: len(running.keys()) == 20)
    assert running.post("stop").json()["state"] == "STOPPED"
    assert running.ended() == EXIT_STOPPED
    job = running.jobs.get("j")
    assert (job.state, job.reason, job.lease_until_ms) == (LoadJobState.STOPPED, "by the door", 0)


def test_one_that_fails_says_why(tmp_path: Path) -> None:
    running = Running(tmp_path, rejects=LoaderRejects(tolerance_percent=10))
    try:
        running.broker.append("t", OutRecord(b"{", partition=0))
        assert running.ended() == EXIT_FAILED
        found = running.status()
        assert (found.state, found.stop_cause) == ("FAILED", "too_many_rejects")
        assert "malformed_json" in found.reason
    finally:
        running.close()


def test_an_error_without_a_name_ends_it_and_is_told(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody has thought of it")

    monkeypatch.setattr(running.sink, "load", fails)
    running.produce(range(4))
    assert running.ended() == EXIT_FAILED
    found = running.status()
    assert (found.state, found.stop_cause) == ("FAILED", "broken")
    assert "nobody has thought of it" in found.reason
    assert running.keys() == []


def test_one_that_has_lost_the_job_ends_without_a_word(running: Running) -> None:
    running.ledger.write("as time would", type(None), lambda it: it.exec_driver_sql(
        "UPDATE load_job SET lease_until_ms = 0") and None)  # fmt: skip
    other = running.jobs.leases.acquire("j", "another", 60_000)
    assert running.ended() == EXIT_OWNED
    job = running.jobs.get("j")
    assert (job.owner, job.state) == ("another", LoadJobState.RUNNING)
    running.jobs.leases.release(other)


def test_a_sink_that_restarts_is_ridden_out(running: Running) -> None:
    running.produce(range(10))
    wait(lambda: len(running.keys()) == 10)
    running.sink.down = True
    running.produce(range(10, 60))
    wait(lambda: "down" in running.status().last_error)
    running.sink.down = False
    wait(lambda: len(running.keys()) == 60)
    assert running.keys() == list(range(60))
