"""Folders and files of one stack.

<root>/stack.json               ports, components, settings (0600)
<root>/env.sh                   the settings, to be sourced by a shell (0600)
<root>/lock                     held by `up` and `down`
<root>/run/<component>/         pid file, logs, configuration and, of the servers, their data
<root>/secrets/token            the cluster's bearer token
<root>/secrets/users            SQL users: name:sha256(sha256(password)) in hex:rights
<root>/secrets/sql-password     password of the SQL user `rtolap`
<root>/secrets/netrc            the same user and password, for curl
<root>/secrets/zookeeper-password   password of rtolap's nodes in ZooKeeper
<root>/secrets/mariadb-password password of MariaDB's user `rtolap`
<root>/secrets/airflow-jwt      signs the tokens between Airflow's components
<root>/secrets/airflow-api      signs Airflow's web sessions
<root>/secrets/airflow-fernet   encrypts Airflow's stored connections
<root>/data/                    receivers' local data
<root>/data/store/              the object store
<root>/airflow/                 AIRFLOW_HOME with its SQLite database and task logs
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_DIR = ".stack"


@dataclass(frozen=True)
class StackLayout:
    root: Path

    @property
    def state_file(self) -> Path:
        return self.root / "stack.json"

    @property
    def env_file(self) -> Path:
        return self.root / "env.sh"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    def run(self, component: str) -> Path:
        return self.root / "run" / component

    def pid_file(self, component: str) -> Path:
        return self.run(component) / f"{component}.pid"

    def pid_files(self) -> list[Path]:
        return sorted((self.root / "run").glob("*/*.pid"))

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    def secret(self, name: str) -> Path:
        return self.secrets / name

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def store(self) -> Path:
        return self.data / "store"

    @property
    def airflow_home(self) -> Path:
        return self.root / "airflow"
