"""A loader as a process, between a real Kafka and a cluster of endpoints and nodes; everything can be
killed.

A run is seeded: what is produced, and what is killed when. The table must equal a recount of the topic.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rtolap.base.addresses import host_port
from rtolap.base.settings import Settings
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.model.loader import (
    Loader,
    LoaderApplication,
    LoaderBatch,
    LoaderProcesses,
    LoaderRejects,
    LoaderSink,
    SinkPartitions,
)
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.messages import TableSchema
from rtolap.stack.ports import free_port
from rtolap.stack.probes import http_missing
from rtolap.stack.process import ManagedProcess
from rtolap.stack.spec import ProcessSpec
from rtolap.stored.loader.job import JobConfig, write_config
from rtolap.stored.loader.operations import JobAccess
from rtolap.stored.metastore.database import Ledger
from rtolap.stored.metastore.load_jobs import LoadJobEvent

from tests.support.stored.stream_load_cluster import PASSWORD, USER, StreamLoadCluster
from tests.support.twins.loader_sink import Row
from tests.support.waiting import patience_s

DATABASE = "loads"
_POLL_S = 0.1


def stored_table(name: str, model: str) -> StoredTable:
    """Return the columns of `loader_runs.table_schema`, as a table of our own."""
    functions = {"aggregate": ("SUM", "MAX", "MAX"), "replace": ("SUM", "REPLACE", "REPLACE")}.get(model)
    v, n, src = functions or (None, None, None)
    kind = {"duplicate": "duplicate", "unique": "unique", "sequence": "unique"}.get(model, "aggregate")
    return StoredTable(
        database=DATABASE,
        name=name,
        model=kind,  # type: ignore[arg-type]
        keys=("k",),
        sequence_column="n" if model == "sequence" else None,
        columns=(
            StoredColumn("k", "bigint", nullable=False),
            StoredColumn("v", "bigint", nullable=False, aggregate=v),  # type: ignore[arg-type]
            StoredColumn("n", "bigint", aggregate=n),  # type: ignore[arg-type]
            StoredColumn("src", "string", aggregate=src),  # type: ignore[arg-type]
        ),
    )


@dataclass(frozen=True)
class Around:
    """The servers that a loader works with. `env` names the ledger to processes."""

    kafka: ManagedProcess
    mariadb: ManagedProcess
    cluster: StreamLoadCluster
    ledger: Ledger
    env: dict[str, str]


class LoaderWorld:
    """The loader is `name`, and so is its topic; its table is `loads.name`."""

    def __init__(
        self,
        name: str,
        model: str,
        around: Around,
        folder: Path,
        *,
        partitions: int = 2,
        two_phase: bool = False,
        batch: LoaderBatch = LoaderBatch(rows=400, interval_ms=300),
        table: StoredTable | None = None,
        application: LoaderApplication | None = None,
        sink_partitions: SinkPartitions | None = None,
        env: dict[str, str] | None = None,
        reached: KafkaCluster | None = None,
        kafka_cluster: str = DEFAULT_KAFKA_CLUSTER,
        rejects: LoaderRejects = LoaderRejects(tolerance_percent=0),
        processes: int | LoaderProcesses | None = None,
        **loader_changes: object,
    ) -> None:
        """Take the parts. `reached` is how this test reaches the topic, by default where `around` has Kafka;
        `kafka_cluster` is the loader's name of that cluster; `loader_changes` are further fields of its
        definition."""
        folder.mkdir(parents=True, exist_ok=True)
        kafka, cluster = around.kafka.address, around.cluster
        self.name, self.model, self.cluster = name, model, cluster
        self.produced: list[Row] = []
        self.number = 0
        self._partitions = partitions
        self._admin = KafkaAdmin(reached or kafka)
        self._admin.create_topic(name, partitions)
        self._producer = KafkaProducer(reached or kafka)
        cluster.tables.create(table or stored_table(name, model))
        password = folder / "password"
        password.write_text(PASSWORD)
        self.loader = Loader(
            name=name,
            topic=name,
            database=DATABASE,
            table=name,
            batch=batch,
            rejects=rejects,
            kafka_cluster=kafka_cluster,
            sink=LoaderSink(
                urls=tuple(cluster.urls),
                user=USER,
                password_file=str(password),
                two_phase=two_phase,
                timeout_ms=20_000,
                partitions=sink_partitions,
            ),
            application=application,
            processes=processes,
            **loader_changes,  # type: ignore[arg-type]
        )
        clusters = (env or {}).get("RTOLAP_KAFKA_CLUSTERS")
        settings = Settings(
            kafka=kafka,
            kafka_clusters=None if clusters is None else Path(clusters),
            token_file=cluster.folder / "token",
            data_dir=folder,
            host=cluster.host,
        )
        self.access = JobAccess(around.ledger, settings)
        self.access.jobs.create(name, DATABASE, name, name, write_config(JobConfig(self.loader)))
        self.access.jobs.change_state(name, LoadJobEvent.START, "")
        self._folder, self._host = folder, cluster.host
        self._env = {
            **around.env,
            "RTOLAP_HOST": cluster.host,
            "RTOLAP_KAFKA": kafka,
            "RTOLAP_TOKEN_FILE": str(cluster.folder / "token"),
            "RTOLAP_DATA_DIR": str(folder),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **(env or {}),
        }
        self.process = self._process(0)
        self.processes = [self.process]

    def add_process(self) -> ManagedProcess:
        """Return one more process of the job, which is not started."""
        self.processes.append(self._process(len(self.processes)))
        return self.processes[-1]

    def _process(self, number: int) -> ManagedProcess:
        port = free_port()
        argv = (sys.executable, "-m", "rtolap.cli.main", "loader", "run", self.name, "--port", str(port))
        return ManagedProcess(
            ProcessSpec(
                name=f"loader-{self.name}-{number}" if number else f"loader-{self.name}",
                folder=self._folder / (f"process-{number}" if number else "process"),
                argv=(*argv, "--process", str(number)) if number else argv,
                address=host_port(self._host, port),
                ports=(port,),
                env=self._env,
                ready=lambda _: http_missing(f"http://{host_port(self._host, port)}/health"),
            )
        )

    def produce(self, chooser: random.Random, records: int) -> None:
        """Produce records, acknowledged before it returns. A key stays in its partition, so that its order is
        known."""
        rows = []
        for _ in range(records):
            self.number += 1
            partition = chooser.randrange(self._partitions)
            key = partition * 100 + chooser.randrange(20)
            n = self.number if self.model != "sequence" else (self.number * 7_919) % 1_000_003
            rows.append(
                (partition, {"k": key, "v": chooser.randrange(100), "n": n, "src": f"s{self.number:07}"})
            )
        self.produce_rows(rows)

    def produce_rows(self, rows: list[tuple[int, Row]]) -> None:
        """Produce rows as (partition, row), acknowledged before it returns."""
        self._producer.produce(
            self.name, [OutRecord(msgspec.json.encode(row), partition=partition) for partition, row in rows]
        )
        self._producer.flush(60)
        self.produced += [row for _, row in rows]

    def produce_values(self, records: list[tuple[int, bytes | None]]) -> None:
        """Produce records as (partition, value), acknowledged before it returns."""
        out = [OutRecord(value, partition=partition) for partition, value in records]
        self._producer.produce(self.name, out)
        self._producer.flush(60)

    def add_partition(self) -> None:
        self._partitions += 1
        self._admin.add_partitions(self.name, self._partitions)

    def schema(self) -> TableSchema:
        sink = self.loader.sink
        with StreamLoadClient(sink.urls, sink.user, PASSWORD) as client:
            return client.schema(DATABASE, self.loader.table)

    def status(self) -> LoaderStatus:
        return self.access.status(self.access.jobs.get(self.name))

    def wait_until(self, is_so: Callable[[LoaderStatus], bool], timeout_s: float = 90.0) -> LoaderStatus:
        deadline_s = time.monotonic() + patience_s(timeout_s)
        while not is_so(found := self.status()):
            assert found.state != "FAILED", f"{found.reason}\n{self.process.log_tail(40)}"
            assert time.monotonic() < deadline_s, f"{found}\n{self.process.log_tail(40)}"
            time.sleep(_POLL_S)
        return found

    def wait_loaded(self, timeout_s: float = 90.0) -> LoaderStatus:
        """Wait until everything in the topic is loaded, by the ledger."""
        ends = self._admin.offsets(self.name, "latest")
        return self.wait_until(
            lambda it: all(it.loaded.get(partition, 0) >= end for partition, end in ends.items()), timeout_s
        )

    def rows(self) -> list[Row]:
        return self.cluster.rows(TableName(DATABASE, self.name))

    def close(self) -> None:
        for process in self.processes:
            process.stop()
        self._producer.close()
        self._admin.close()
