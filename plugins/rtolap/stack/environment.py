"""Variables that the stack gives to its services, to Airflow, and to shells (`env.sh`)."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from rtolap.base.files import checkout, shipped, write_atomic
from rtolap.stack.java import spark_submit_options
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import HOST
from rtolap.stack.secrets import (
    AIRFLOW_PASSWORD,
    AIRFLOW_PASSWORDS,
    AIRFLOW_USER,
    SQL_USER,
    ZOOKEEPER_PASSWORD,
    read_secret,
)

# In the environment of everything the stack starts, and so of what those start: `down` finds them by it.
STACK_MARK = "RTOLAP_STACK_ID"
MARIADB_DATABASE = MARIADB_USER = "rtolap"
MARIADB_SECRET = "mariadb-password"


def rtolap_settings(
    layout: StackLayout, ports: Mapping[str, int], *, mariadb: bool = False, spark: bool = False
) -> dict[str, str]:
    """Return the `RTOLAP_*` variables by which everything finds everything. They name files of secrets, never
    secrets.

    The ledger is in a file, or with `mariadb` on the stack's server. With `spark`, large reads of history are
    made on the stack's Spark service.
    """
    ledger = {"RTOLAP_LEDGER": f"sqlite:///{layout.data / 'ledger.db'}"}
    if mariadb:
        ledger = {
            "RTOLAP_LEDGER": f"mysql://{MARIADB_USER}@{HOST}:{ports['mariadb']}/{MARIADB_DATABASE}",
            "RTOLAP_LEDGER_PASSWORD_FILE": str(layout.secret(MARIADB_SECRET)),
        }
    history = {"RTOLAP_HISTORY_SPARK": f"sc://localhost:{ports['spark']}"} if spark else {}
    return {
        **ledger,
        **history,
        "RTOLAP_HISTORY_SPARK_PORT": str(ports["spark"]),
        "RTOLAP_HOST": HOST,
        "RTOLAP_ZOOKEEPER": f"{HOST}:{ports['zookeeper']}",
        "RTOLAP_HBASE": f"{HOST}:{ports['hbase-zookeeper']}/hbase",
        "RTOLAP_KAFKA": f"{HOST}:{ports['kafka']}",
        "RTOLAP_COORDINATOR_PORT": str(ports["coordinator"]),
        "RTOLAP_RECEIVER_PORT": str(ports["receiver"]),
        "RTOLAP_QUERY_HTTP_PORT": str(ports["query-http"]),
        "RTOLAP_QUERY_MYSQL_PORT": str(ports["query-mysql"]),
        "RTOLAP_AGENT_PORT": str(ports["agent"]),
        "RTOLAP_STREAM_LOAD_PORT": str(ports["stream-load"]),
        "RTOLAP_STREAM_LOAD_BODY_PORT": str(ports["stream-load-body"]),
        "RTOLAP_STORAGE_PORT": str(ports["storage"]),
        "RTOLAP_DATA_DIR": str(layout.data),
        "RTOLAP_OBJECT_STORE": layout.store.as_uri(),
        "RTOLAP_TOKEN_FILE": str(layout.secret("token")),
        "RTOLAP_ZOOKEEPER_PASSWORD_FILE": str(layout.secret(ZOOKEEPER_PASSWORD)),
        "RTOLAP_USERS_FILE": str(layout.secret("users")),
        # definitions are the user's own: beside an installed package they are in the working folder
        "RTOLAP_INCLUDE_DIR": str((checkout() or Path.cwd()) / "include"),
        "RTOLAP_SPARK_JOBS_DIR": str(shipped("spark_jobs")),
    }


def service_env(layout: StackLayout, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every process. The interpreter's folder leads the PATH: spark-submit and
    airflow are there."""
    scripts = str(Path(sys.executable).parent)
    return {
        **settings,
        STACK_MARK: str(layout.root),
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_SUBMIT_OPTS": spark_submit_options(),
        "PYTHONUNBUFFERED": "1",
    }


def airflow_env(layout: StackLayout, settings: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
    """Return the variables of Airflow's processes. Everything that they start inherits them, so they name
    files of secrets."""
    home = layout.airflow_home
    url = airflow_url(ports)
    root = checkout()
    return {
        **service_env(layout, settings),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(shipped("dags")),
        # an installed package registers its plugin by itself
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(root / "plugins" if root else home / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "rtolap.airflow.executor.OrderedLocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{airflow_execution_url(ports)}/execution/",
        **_read_at_use(layout, "AIRFLOW__CORE__FERNET_KEY", "airflow-fernet"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{AIRFLOW_USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(layout.secret(AIRFLOW_PASSWORDS)),
        "RTOLAP_AIRFLOW_HOSTS": f"{HOST},localhost",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(ports["airflow"]),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        **_read_at_use(layout, "AIRFLOW__API__SECRET_KEY", "airflow-api"),
        **_read_at_use(layout, "AIRFLOW__API_AUTH__JWT_SECRET", "airflow-jwt"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        # a component waits for another's write instead of being refused: see docs/decisions/0014
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "rtolap.airflow.database.SQLITE_ARGUMENTS",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "rtolap.airflow.database.SQLITE_ARGUMENTS",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        # a process that ends between two looks is seen after so many seconds; 5 by default, for deferrals too
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        **airflow_connections(layout, ports),
    }


def _read_at_use(layout: StackLayout, option: str, name: str) -> dict[str, str]:
    """Have Airflow read an option from a file of secrets, each time it needs it."""
    return {f"{option}_CMD": shlex.join(["cat", str(layout.secret(name))])}


def airflow_url(ports: Mapping[str, int]) -> str:
    return f"http://{HOST}:{ports['airflow']}"


def airflow_execution_url(ports: Mapping[str, int]) -> str:
    """Return the URL at which tasks report what they do; a server of its own: see docs/decisions/0014."""
    return f"http://{HOST}:{ports['airflow-execution']}"


def airflow_connections(layout: StackLayout, ports: Mapping[str, int]) -> dict[str, str]:
    rtolap = {
        "conn_type": "rtolap",
        "host": HOST,
        "port": ports["coordinator"],
        "extra": {
            "agent_url": f"http://{HOST}:{ports['agent']}",
            "query_url": f"http://{HOST}:{ports['query-http']}",
        },
    }
    # No password: the token is read from RTOLAP_TOKEN_FILE, which only its owner reads.
    # No `kafka_default` and `spark_default`: without them RTOLAP_KAFKA and RTOLAP_SPARK_MASTER count, and who
    # makes them on Airflow's page is followed. A variable would win over the page.
    return {"AIRFLOW_CONN_RTOLAP_DEFAULT": json.dumps(rtolap)}


def mysql_line(layout: StackLayout, ports: Mapping[str, int]) -> str:
    """Return a line that is ready to paste. The shell reads the password from its file; the line itself holds
    none."""
    password = shlex.quote(str(layout.secret("sql-password")))
    return f'MYSQL_PWD="$(cat {password})" mysql -h {HOST} -P {ports["query-mysql"]} -u {SQL_USER}'


def airflow_line(layout: StackLayout, ports: Mapping[str, int]) -> str:
    """Return the line with the URL of Airflow's page and its administrator: a browser reads no file of
    passwords.
    """
    password = read_secret(layout, AIRFLOW_PASSWORD)
    return f"{airflow_url(ports)}  user {AIRFLOW_USER}, password {password}"


def load_line(layout: StackLayout, ports: Mapping[str, int]) -> str:
    """Return the same for a load over HTTP, but for the names in capitals."""
    netrc = shlex.quote(str(layout.secret("netrc")))
    url = f"http://{HOST}:{ports['stream-load']}/api/DATABASE/TABLE/_stream_load"
    headers = '-H "Expect: 100-continue" -H "column_separator: ,"'
    return f"curl --netrc-file {netrc} --location-trusted {headers} -T FILE.csv {url}"


def write_env_file(layout: StackLayout, settings: Mapping[str, str], ports: Mapping[str, int]) -> None:
    """Write a file to be sourced: rtolap's settings and Airflow's, so that `rtolap` and `airflow` work in a
    shell."""
    base = {"PATH", "PYTHONUNBUFFERED", STACK_MARK}
    everything = airflow_env(layout, settings, ports)
    values = {name: value for name, value in everything.items() if name not in base}
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))
    write_atomic(layout.env_file, text.encode(), mode=0o600)
