"""What a Spark driver of the local stack listens on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from rtolap.stack.environment import service_env
from rtolap.stack.layout import StackLayout

pytestmark = pytest.mark.integration

SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.port", "0").getOrCreate()
print(spark.sparkContext.uiWebUrl, flush=True)
sys.stdin.read()
spark.stop()
"""


def test_a_driver_and_its_page_listen_on_loopback_only(tmp_path: Path) -> None:
    environment = {**os.environ, **service_env(StackLayout(tmp_path / "stack"), {})}
    with subprocess.Popen(
        [sys.executable, "-c", SESSION],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        page = driver.stdout.readline().strip()
        family = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
        addresses = [
            connection.laddr
            for process in family
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        driver.stdin.close()
        driver.wait(60)
    assert int(page.rpartition(":")[2]) in {address.port for address in addresses}
    assert {address.ip.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
