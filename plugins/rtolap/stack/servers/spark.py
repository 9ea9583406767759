"""A Spark Connect service out of pyspark's jars makes large reads of history for the query service.

Who reaches its port and has its token can run anything in Spark as the user of this process. So it listens
on the loopback address alone, it takes no call without the token, and its token opens nothing else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from rtolap.stack.artifacts import pyspark_jars
from rtolap.stack.java import hadoop_uri, spark_submit_options, write_log4j

ADDRESS = "127.0.0.1"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # not on a command line, which everybody reads
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOCAL = re.compile(r"local\[(\d+)(?:,\d+)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),(\d+)\]")  # workers, their cores, their MB


class ConnectProgram(NamedTuple):
    """The program of a Spark Connect service, and the environment that it is run with."""

    argv: tuple[str, ...]
    environment: dict[str, str]


def connect_program(
    folder: Path, *, master: str, port: int, token: str, memory_mb: int, spark_host: str
) -> ConnectProgram:
    """Return how the service is run; writes its configuration into the folder.

    Args:
        folder: where Spark keeps what it spills.
        memory_mb: memory of the driver, which is all there is on a local master.
        spark_host: address at which executors call the driver back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = pyspark_jars().parent
    log4j = write_log4j(folder, "warn")
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.connect.grpc.binding.address": ADDRESS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": hadoop_uri(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(2 * _cores(master)),
    }
    workers = _LOCAL_CLUSTER.fullmatch(master)
    if workers is not None:
        settings["spark.executor.memory"] = f"{workers[3]}m"
    if spark_host:
        settings |= {"spark.driver.host": spark_host, "spark.driver.bindAddress": spark_host}
    # On a standalone cluster, the secret stands in the host's spark-defaults.conf; a local one is for trials.
    if not master.startswith(("spark://", "local-cluster[")):
        settings["spark.authenticate"] = "true"
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    argv = (
        *(str(home / "bin" / "spark-submit"), "--master", master, "--name", "rtolap-history"),
        *("--driver-memory", f"{memory_mb}m", *words, "--class", _CLASS, "spark-internal"),
    )
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        TOKEN_VARIABLE: token,
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS") or spark_submit_options(),
    }
    if spark_host:
        environment["SPARK_LOCAL_IP"] = spark_host
    return ConnectProgram(argv, environment)


def _cores(master: str) -> int:
    """Return the processors that the master names; those of a cluster are not known here."""
    if master == "local":
        return 1
    threads, workers = _LOCAL.fullmatch(master), _LOCAL_CLUSTER.fullmatch(master)
    if threads is not None:
        return int(threads[1])
    if workers is not None:
        return int(workers[1]) * int(workers[2])
    return os.cpu_count() or 1
