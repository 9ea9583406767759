"""The connection of HBase by its type and its default, known without a client of ZooKeeper."""

from __future__ import annotations

from typing import Any

HBASE_CONN_TYPE = "hbase"
HBASE_DEFAULT = "hbase_default"

DueArguments = dict[str, Any]  # the fields of `sep.status.wait.DueLogs`, as JSON has them
