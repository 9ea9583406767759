"""Two processes of one job, as threads, each with its endpoint: what status, metrics and commands say."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rtolap.base.clock import SystemClock
from rtolap.base.errors import DefinitionError, Refused
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.cli.loader import commands as command
from rtolap.cli.main import app
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import Loader, LoaderBatch, LoaderProcesses
from rtolap.protocols.loader.messages import PROCESS_API, LoaderStatus
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.servers.limits import HttpLimits
from rtolap.stored.loader.http import make_app
from rtolap.stored.loader.job import JobConfig, JobResources, SharedResources, write_config
from rtolap.stored.loader.operations import JobAccess
from rtolap.stored.loader.records.rejects import FileBox
from rtolap.stored.loader.shared_runner import measure_shared
from rtolap.stored.loader.shares.leader import TopicView
from rtolap.stored.loader.shares.process import SharedLoaderProcess
from rtolap.stored.loader.shares.status import series_of, status_of_shared_job
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.load_shares import LoadShares
from rtolap.stored.metastore.offsets import OffsetsRecords
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink
from tests.support.waiting import until

TOKEN = "the cluster's"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
RECORDS = 200


class Shared:
    """A job `j` of two shares, and its processes."""

    def __init__(self, folder: Path) -> None:
        self.ledger = open_ledger(folder / "ledger.db")
        self.jobs, self.shares = LoadJobs(self.ledger), LoadShares(self.ledger)
        self.broker, self.sink = MemoryBroker(), MemorySink()
        self.broker.create("t", 2)
        self.sink.tables["d", "t"] = TableSchema(properties=(SchemaColumn("k", "BIGINT", is_nullable="No"),))
        self.loader = Loader(
            name="j", topic="t", database="d", table="t", batch=LoaderBatch(rows=10, interval_ms=20),
            processes=LoaderProcesses(min=2, max=2, shares=2),
        )  # fmt: skip
        self.jobs.create("j", "d", "t", "t", write_config(JobConfig(self.loader)))
        self.jobs.change_state("j", LoadJobEvent.START, "")
        self.box = FileBox(folder / "rejects.jsonl")
        job = JobResources(
            self.jobs, OffsetsRecords(self.ledger), self.sink,
            lambda it: MemoryConsumer(self.broker, it.topic), self.box, SystemClock(),
        )  # fmt: skip
        self.resources = SharedResources(job, self.shares, OffsetsRecords(self.ledger, of_shares=True))
        self.topic = TopicView(self.resources, self.loader)
        self.processes: list[SharedLoaderProcess] = []
        self.threads: list[threading.Thread] = []

    def start(self) -> SharedLoaderProcess:
        number = len(self.processes)
        process = SharedLoaderProcess(
            "j", number, f"127.0.0.1:{number + 1}/x", self.resources, self.topic.log,
            round_s=0.05, commit_s=0.05,
        )  # fmt: skip
        self.processes.append(process)
        self.threads.append(threading.Thread(target=process.run, daemon=True))
        self.threads[-1].start()
        return process

    def status(self) -> LoaderStatus:
        job, division = self.jobs.get("j"), self.shares.division("j")
        told = tuple(process.status() for process in self.processes)
        series = series_of(self.resources, job, division)
        return status_of_shared_job(job, division, series, self.topic.log(), told)

    def endpoint(self, process: SharedLoaderProcess) -> TestClient:
        metrics = Metrics("loader")
        measure_shared(metrics, process)
        return TestClient(
            make_app("j", TOKEN, metrics, self.status, process.want, HttpLimits(), process.status)
        )

    def produce(self, first: int) -> None:
        for number in range(first, first + RECORDS):
            self.broker.append("t", OutRecord(b'{"k": %d}' % number, partition=number % 2))

    def close(self) -> None:
        for process in self.processes:
            process.stop()
        for thread in self.threads:
            thread.join(30.0)
        self.topic.close()
        self.box.close()
        self.ledger.close()


def figures(page: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("loader") == "j"
    }


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    here = Shared(tmp_path)
    yield here
    here.close()


def test_each_process_says_what_its_shares_do_and_its_counters_never_fall(shared: Shared) -> None:
    first = shared.start()
    shared.produce(0)
    until(lambda: len(shared.sink.rows("d", "t")) == RECORDS)
    until(lambda: first.status().lag_records == 0)
    endpoint = shared.endpoint(first)
    assert endpoint.get(PROCESS_API).status_code == 401
    told = endpoint.get(PROCESS_API, headers=HEADERS).json()
    assert (told["number"], told["alive"], told["leads"], told["phase"]) == (0, True, True, "loading")
    assert [(share["number"], share["partitions"]) for share in told["shares"]] == [(0, [0]), (1, [1])]
    assert (told["lag_records"], told["rows_loaded"]) == (0, RECORDS)

    second = shared.start()
    until(lambda: [len(each.status().partition_numbers) for each in shared.processes] == [1, 1])
    shared.produce(RECORDS)
    until(lambda: len(shared.sink.rows("d", "t")) == 2 * RECORDS)
    until(lambda: sum(each.runs.counts().rows_loaded for each in shared.processes) == 2 * RECORDS)
    found = [figures(shared.endpoint(each).get("/metrics", headers=HEADERS).text) for each in (first, second)]
    assert [each["rtolap_loader_shares_owned"] for each in found] == [1, 1]
    assert [each["rtolap_loader_partitions_owned"] for each in found] == [1, 1]
    assert [each["rtolap_loader_leads"] for each in found] == [1, 0]
    assert found[0]["rtolap_loader_processes_wanted"] == 2
    # what the first had loaded of the share that moved still counts
    assert [each["rtolap_loader_rows_loaded_total"] for each in found] == [RECORDS * 3 / 2, RECORDS / 2]
    assert sorted(row["k"] for row in shared.sink.rows("d", "t")) == list(range(2 * RECORDS))


def test_the_command_shows_the_processes_and_the_partitions_of_each(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.start()
    shared.start()
    shared.produce(0)
    until(lambda: [len(each.status().partition_numbers) for each in shared.processes] == [1, 1])
    until(lambda: shared.status().lag_records == 0)

    access = JobAccess(shared.ledger, Settings())
    monkeypatch.setattr(JobAccess, "status", lambda self, job: shared.status())
    monkeypatch.setattr(command, "job_access", lambda settings: _Opened(access))
    shown = CliRunner().invoke(app, ["loader", "status", "j"])
    assert shown.exit_code == 0, shown.output
    assert "j: 2 shares; 2 processes wanted, 2 live" in shown.stdout
    rows = [re.split(r"[\s│|]+", line.strip(" │|")) for line in shown.stdout.splitlines()]
    of_processes = sorted(row[:6] for row in rows if row[0] in ("0", "1"))
    partitions = {row[0]: row[4] for row in of_processes}
    assert sorted(partitions.values()) == ["0", "1"], shown.stdout
    assert sorted(row[1:4] for row in of_processes) == [["yes", "no", "loading"], ["yes", "yes", "loading"]]


def test_a_batch_of_a_share_is_settled_by_a_person_who_names_the_share(shared: Shared) -> None:
    process = shared.start()
    until(lambda: len(process.status().partition_numbers) == 2)
    process.stop()
    shared.threads[0].join(30.0)
    records, share = shared.resources.records, shared.shares.division("j").shares[1]
    lease = shared.shares.leases.acquire(share.share_id, "gone", 1)
    last = records.all(share.share_id)[-1]
    number = last.sequence_id + 1
    records.insert(lease, number, f"j_1_s1_{number}", last.end_offsets, {1: last.end_offsets[1] + 4})
    records.mark_sent(lease, number)
    shared.shares.leases.release(lease)
    access = JobAccess(shared.ledger, Settings())
    with pytest.raises(Refused, match="no such batch"):
        access.settle("j", number + 1, loaded=True, share=1)
    with pytest.raises(DefinitionError, match="--share 0 to 1"):
        access.settle("j", number, loaded=True)
    access.settle("j", number, loaded=True, share=1)
    found = records.all(share.share_id)[-1]
    assert (found.sequence_id, found.loaded) == (number, True)


class _Opened:
    def __init__(self, access: JobAccess) -> None:
        self._access = access

    def __enter__(self) -> JobAccess:
        return self._access

    def __exit__(self, *_: object) -> None:
        return
