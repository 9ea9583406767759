"""The provider's information for Airflow: the connection types of rtolap and of HBase, with their forms."""

from __future__ import annotations

from typing import Any

from rtolap import __version__
from rtolap.airflow.hooks.connection import CONN_TYPE
from rtolap.airflow.hooks.hbase_connection import HBASE_CONN_TYPE


def get_provider_info() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "package-name": "rtolap",
        "name": "rtolap",
        "description": "Real-time OLAP on Kafka: receivers, segments, Spark builds.",
        "versions": [__version__],
        "connection-types": [
            {
                "connection-type": CONN_TYPE,
                "hook-class-name": "rtolap.airflow.hooks.rtolap.RtolapHook",
                "hook-name": "rtolap",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "extra"],
                    "relabeling": {
                        "host": "Coordinator host",
                        "port": "Coordinator port",
                        "password": "Cluster token",
                    },
                    "placeholders": {"host": "127.0.0.1", "port": "7070"},
                },
                "conn-fields": {
                    "coordinator_urls": {
                        "label": "All coordinators",
                        "description": "Base URLs separated by commas; stands in for host and port.",
                        "schema": text,
                    },
                    "agent_url": {
                        "label": "Agent",
                        "description": "Base URL of the agent that starts receivers and builds.",
                        "schema": text,
                    },
                    "stream_load_urls": {
                        "label": "Front ends of stored tables",
                        "description": "Base URLs separated by commas.",
                        "schema": text,
                    },
                    "query_url": {
                        "label": "Query service",
                        "description": "Base URL of its HTTP endpoint.",
                        "schema": text,
                    },
                },
            },
            {
                "connection-type": HBASE_CONN_TYPE,
                "hook-class-name": "rtolap.airflow.hooks.hbase.HBaseHook",
                "hook-name": "HBase (rtolap)",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "password", "extra"],
                    "relabeling": {"host": "ZooKeeper servers", "port": "ZooKeeper port"},
                    "placeholders": {"host": "zk1,zk2,zk3", "port": "2181"},
                },
                "conn-fields": {
                    "parent": {
                        "label": "Parent node",
                        "description": "zookeeper.znode.parent of HBase; /hbase without it.",
                        "schema": text,
                    },
                    "root_dir": {
                        "label": "Folder of logs",
                        "description": "hbase.rootdir, or hbase.wal.dir where that is set: sizes of logs "
                        "are read there.",
                        "schema": text,
                    },
                },
            },
        ],
    }
