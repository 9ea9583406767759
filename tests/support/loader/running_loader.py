"""A loader's process in a thread of this one: Kafka and sink in memory, the ledger in a file, a real
endpoint.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient
from rtolap.base.clock import SystemClock
from rtolap.base.metrics import Metrics
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.loader import Loader, LoaderBatch
from rtolap.protocols.loader.messages import API, LoaderStatus
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.servers.limits import HttpLimits
from rtolap.stored.loader.http import make_app
from rtolap.stored.loader.job import JobConfig, JobResources, write_config
from rtolap.stored.loader.job_run import LoadJobRun, begin
from rtolap.stored.loader.partition_role import OpenSession, PartitionRole
from rtolap.stored.loader.process import LoaderProcess
from rtolap.stored.loader.records.rejects import FileBox
from rtolap.stored.loader.runner import measure
from rtolap.stored.loader.status import status_of
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobs
from rtolap.stored.metastore.offsets import OffsetsRecords

from tests.support.stored.ledgers import open_ledger
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.loader_sink import MemorySink

TIMEOUT_S = 30.0
TOKEN = "the cluster's"


class Running:
    """A loader `j` of topic `t` into d.t, running in a thread. `open_session`: to where partitions are made,
    if `changes` require that."""

    def __init__(self, folder: Path, *, open_session: OpenSession | None = None, **changes: Any) -> None:
        self.ledger = open_ledger(folder / "ledger.db")
        self.jobs, self.records = LoadJobs(self.ledger), OffsetsRecords(self.ledger)
        self.broker, self.sink = MemoryBroker(), MemorySink()
        self.broker.create("t", 2)
        self.sink.tables["d", "t"] = TableSchema(
            properties=(SchemaColumn("k", "BIGINT", is_nullable="No"), SchemaColumn("at", "DATETIME"))
        )
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
        self.jobs.change_state("j", LoadJobEvent.START, "")
        self.box = FileBox(folder / "rejects.jsonl")
        work = begin(
            "j",
            "127.0.0.1:1/x",
            JobResources(
                self.jobs,
                self.records,
                self.sink,
                lambda it: MemoryConsumer(self.broker, it.topic),
                self.box,
                SystemClock(),
            ),
        )
        partitions = None if open_session is None else _keeper(work, open_session)
        self.process = LoaderProcess(work, commit_s=0.05, partitions=partitions)
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        metrics = Metrics("loader")
        measure(metrics, self.process, self.status)
        self.endpoint = TestClient(
            make_app("j", TOKEN, metrics, self.status, self.process.want, HttpLimits())
        )
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    def _run(self) -> None:
        self.code = self.process.run()

    def status(self) -> LoaderStatus:
        asked_ms, log = self.process.work.clock.now_ms(), self.process.work.log()
        return status_of(self.jobs.get("j"), self.records.all("j"), log, self.process, asked_ms)

    def post(self, change: str) -> httpx.Response:
        answer: httpx.Response = self.endpoint.post(f"{API}/{change}", headers=self.headers)
        return answer

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


def _keeper(work: LoadJobRun, open_session: OpenSession) -> PartitionRole:
    wanted = work.loader.sink.partitions
    assert wanted is not None
    return PartitionRole(
        work.loader, wanted, open_session, lambda: work.columns.target, work.clock, pause_max_s=0.05
    )
