"""The demonstration as a user starts it, once for those who look at its answers and at what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.hostile.recording_proxy import VARIABLES
from tests.support.waiting import patience_s

_PROJECT = Path(__file__).resolve().parents[2]


# The environment of a machine whose way out is a proxy, and nobody said that a stack's services are not out
# there. The proxy does not answer: who asks it for one of them fails.
BEHIND_A_PROXY = dict.fromkeys(VARIABLES, "http://127.0.0.1:9") | {"no_proxy": "", "NO_PROXY": ""}

# The environment of somebody who works with another Spark, Airflow and Hadoop. Who follows it fails.
ELSEWHERE = {
    **BEHIND_A_PROXY,
    "SPARK_HOME": "/opt/another-spark",
    "SPARK_CONF_DIR": "/opt/another-spark/conf",
    "SPARK_DIST_CLASSPATH": "/opt/another-spark/jars/*",
    "PYSPARK_DRIVER_PYTHON": "jupyter",
    "PYSPARK_DRIVER_PYTHON_OPTS": "notebook",
    "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
    "HADOOP_CONF_DIR": "/etc/another-hadoop",
    "AIRFLOW_HOME": "/opt/another-airflow",
    "AIRFLOW_CONFIG": "/opt/another-airflow/airflow.cfg",
    "AIRFLOW__CORE__AUTH_MANAGER": "another.AuthManager",
    "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://another/airflow",
    "AIRFLOW__LOGGING__REMOTE_LOGGING": "True",
    "AIRFLOW__SECRETS__BACKEND": "another.SecretsBackend",
    "AIRFLOW_CONN_KAFKA_DEFAULT": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "another:9092"}}',
    "AIRFLOW_CONN_SPARK_DEFAULT": "spark://another:7077",
}


# What else a machine may say, and nothing here follows.
UNUSUAL = {
    "CLASSPATH": "/opt/another.jar",
    "JAVA_TOOL_OPTIONS": "-Dof.another=true",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
}


class Demonstrated(NamedTuple):
    """A demonstration that has ended. `folder` is the stack's, which has been stopped; nobody has looked at
    the code of `command`."""

    folder: Path
    command: subprocess.CompletedProcess[str]


def user_environment() -> dict[str, str]:
    """Return the environment without the settings of the tests' own process, which runs Airflow in unit test
    mode, in which a scheduler never rests."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "RTOLAP_"))}


def demonstrate(folder: Path) -> Demonstrated:
    """Run two days of the demonstration, in a new stack of this folder."""
    rtolap = [sys.executable, "-m", "rtolap.cli.main"]
    command = subprocess.run(
        [*rtolap, "demo", "--days", "2", "--exit", "--json", "--dir", str(folder)],
        cwd=_PROJECT,
        env={**user_environment(), **ELSEWHERE, **UNUSUAL},
        capture_output=True,
        text=True,
        timeout=patience_s(840),
        check=False,
    )
    return Demonstrated(folder, command)
