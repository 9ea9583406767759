"""All roles at once, as threads of one process, with its endpoint: pause, resume, stop, failure, a lost
lease.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import Unauthorized
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import LoaderRejects
from rtolap.protocols.loader.messages import API, EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED
from rtolap.stored.loader.states import StopCause, Stopped
from rtolap.stored.metastore.load_jobs import LoadJobState

from tests.support.loader.running_loader import Running
from tests.support.waiting import until


class Refusing:
    asked = 0

    def __call__(self, *_: object) -> None:
        self.asked += 1
        raise Unauthorized("not for a while")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.close()


def test_records_arrive_and_the_status_says_so(running: Running) -> None:
    running.produce(range(100))
    until(lambda: len(running.keys()) == 100)
    until(lambda: running.status().lag_records == 0)
    shown = running.endpoint.get(API, headers=running.headers).json()
    assert (shown["job"], shown["state"], shown["alive"], shown["phase"]) == ("j", "RUNNING", True, "loading")
    assert (shown["rows_loaded"], shown["rows_rejected"], shown["pending"]) == (100, 0, 0)
    assert shown["log_ends"] == {"0": 50, "1": 50} == shown["loaded"]
    assert shown["rows_per_s"] > 0
    assert abs(shown["event_ms_loaded"] - time.time() * 1000) < 60_000
    assert running.keys() == list(range(100))


def test_its_endpoint_wants_the_token_and_counts_what_was_done(running: Running) -> None:
    running.produce(range(30))
    until(lambda: len(running.keys()) == 30)
    assert running.endpoint.get("/health").json()["job"] == "j"
    for path in (API, "/metrics"):
        assert running.endpoint.get(path).status_code == 401
        assert running.endpoint.get(path, headers={"Authorization": "Bearer guessed"}).status_code == 401
    assert running.endpoint.post(f"{API}/stop").status_code == 401
    until(lambda: running.status().rows_loaded == 30)
    page = running.endpoint.get("/metrics", headers=running.headers).text
    assert 'rtolap_loader_rows_loaded_total{loader="j"} 30.0' in page
    assert 'rtolap_loader_lag_records{loader="j"} 0.0' in page


def test_a_paused_loader_reads_nothing_and_goes_on_where_it_was(running: Running) -> None:
    running.produce(range(20))
    until(lambda: len(running.keys()) == 20)
    assert running.post("pause").json()["phase"] in ("pausing", "paused")
    until(lambda: running.status().phase == "paused")
    running.produce(range(20, 40))
    found = running.status()
    assert (found.state, found.lag_records, found.pending) == ("PAUSED", 20, 0)
    assert running.keys() == list(range(20))
    assert running.post("resume").json()["state"] == "RUNNING"
    until(lambda: len(running.keys()) == 40)
    assert running.keys() == list(range(40))


def test_a_stopped_loader_gives_the_job_back(running: Running) -> None:
    running.produce(range(20))
    until(lambda: len(running.keys()) == 20)
    assert running.post("stop").json()["state"] == "STOPPED"
    assert running.ended() == EXIT_STOPPED
    job = running.jobs.get("j")
    assert (job.state, job.reason, job.lease_until_ms) == (LoadJobState.STOPPED, "asked to stop", 0)


def test_a_look_at_the_columns_that_is_refused_ends_nothing(running: Running) -> None:
    plain = running.sink.schema
    running.sink.schema = refusing = Refusing()  # type: ignore[method-assign,assignment]
    running.process._columns_due_s = 0.0
    until(lambda: refusing.asked)
    running.sink.schema = plain  # type: ignore[method-assign]
    running.produce(range(20))
    until(lambda: len(running.keys()) == 20)
    assert running.status().state == "RUNNING"


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


def test_one_that_has_failed_does_not_end_as_if_it_was_stopped(running: Running) -> None:
    running.process.work.fail(Stopped(StopCause.STUCK, "said by one thread"))
    running.process.follow()  # what another sees before the first has ended the process
    assert running.ended() == EXIT_FAILED


def test_one_that_has_lost_the_job_ends_without_a_word(running: Running) -> None:
    # in one write: between two, the lease could be renewed
    running.ledger.write("as who takes it would", type(None), lambda it: it.exec_driver_sql(
        "UPDATE load_job SET owner = 'another', epoch = epoch + 1") and None)  # fmt: skip
    assert running.ended() == EXIT_OWNED
    job = running.jobs.get("j")
    assert (job.owner, job.state) == ("another", LoadJobState.RUNNING)


def test_a_sink_that_restarts_is_ridden_out(running: Running) -> None:
    running.produce(range(10))
    until(lambda: len(running.keys()) == 10)
    running.sink.down = True
    running.produce(range(10, 60))
    until(lambda: "down" in running.status().last_error)
    running.sink.down = False
    until(lambda: len(running.keys()) == 60)
    assert running.keys() == list(range(60))
