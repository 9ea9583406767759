"""The provider's information for Airflow: rtolap's connection type with the form's fields."""

from __future__ import annotations

from typing import Any

from rtolap import __version__
from rtolap.airflow.hooks.connection import CONN_TYPE


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
                },
            }
        ],
    }
