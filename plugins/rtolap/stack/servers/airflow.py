"""Airflow's components, on one SQLite database that is migrated once and kept."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rtolap.base.files import write_atomic
from rtolap.stack.environment import airflow_env, airflow_execution_url, airflow_url
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import read_record
from rtolap.stack.ports import HOST, foreign_listener
from rtolap.stack.probes import airflow_missing, http_missing
from rtolap.stack.spec import ProcessSpec, run_once

_MIGRATION_TIMEOUT_S = 240
_READY_TIMEOUT_S = 240  # 20 s on an idle machine; a busy one with two cores may need minutes
_STOP_TIMEOUT_S = 15  # now and then the scheduler hangs in joining its workers; then its session is killed
_migration = threading.Lock()


@dataclass(frozen=True)
class Part:
    """A component of Airflow.

    Attributes:
        name: as the stack has it.
        command: words behind `airflow`.
        health: the part's name on Airflow's page of health, or the path of its own server's.
        port: the name of the port that it serves; None: none.
    """

    name: str
    command: tuple[str, ...]
    health: str
    port: str | None = None


API = Part("airflow-api", ("api-server", "--apps", "core"), "metadatabase", "airflow")
EXECUTION_API = Part(
    "airflow-execution-api", ("api-server", "--apps", "execution"), "/execution/health", "airflow-execution"
)
# The log servers would listen on all addresses; on one machine the API server reads the files themselves.
SCHEDULER = Part("airflow-scheduler", ("scheduler", "--skip-serve-logs"), "scheduler")
DAG_PROCESSOR = Part("airflow-dag-processor", ("dag-processor",), "dag_processor")
TRIGGERER = Part("airflow-triggerer", ("triggerer", "--skip-serve-logs"), "triggerer")


def airflow_spec(
    part: Part, layout: StackLayout, settings: Mapping[str, str], ports: Mapping[str, int]
) -> ProcessSpec:
    env = airflow_env(layout, settings, ports)
    own = () if part.port is None else (ports[part.port],)

    def ready(started_s: float) -> str | None:
        if part is EXECUTION_API:
            return http_missing(f"{airflow_execution_url(ports)}{part.health}")
        missing = airflow_missing(airflow_url(ports), part.health, started_s)
        if missing is not None or part is API:
            return missing
        # the page that reported this part must be our own
        return foreign_listener((ports["airflow"],), read_record(layout.pid_file(API.name)))

    return ProcessSpec(
        name=part.name,
        folder=layout.run(part.name),
        address="".join(f"{HOST}:{port}" for port in own),
        ports=own,
        argv=(str(Path(sys.executable).with_name("airflow")), *part.command),
        env=env if part.port is None else {**env, "AIRFLOW__API__PORT": str(ports[part.port])},
        prepare=lambda: migrate(layout, env),
        ready=ready,
        ready_timeout_s=_READY_TIMEOUT_S,
        stop_timeout_s=_STOP_TIMEOUT_S,
    )


def migrate(layout: StackLayout, env: Mapping[str, str]) -> None:
    """Create or upgrade the database, once per version of Airflow and its Spark provider.

    1. `airflow db migrate`        crash: the marker is missing, the next start migrates again (idempotent)
    2. write the marker
    """
    home = layout.airflow_home
    marker = home / "migrated"
    wanted = version("apache-airflow")
    with _migration:
        if marker.is_file() and marker.read_text() == wanted:
            return
        home.mkdir(parents=True, exist_ok=True)
        run_once(
            [str(Path(sys.executable).with_name("airflow")), "db", "migrate"],
            failure="Airflow's database could not be migrated",
            timeout_s=_MIGRATION_TIMEOUT_S,
            env=env,
        )
        write_atomic(marker, wanted.encode())
