"""Inputs and outputs of builds and loads, for OpenLineage. Nothing is asked for where nobody collects it.

It is found out while a task runs, with its clients, and handed over when the provider asks for it. What
cannot be found out fails no task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk.exceptions import AirflowException

from rtolap.airflow.hooks.on_demand import open_kafka
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.outlets.datasets import (
    DATABASE,
    DatasetName,
    Lineage,
    NamedDataset,
    folder_dataset,
    foreign_dataset,
    history_folder,
    is_collected,
    sql_dataset,
    topic_dataset,
)
from rtolap.base.addresses import is_unspecified
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.protocols.coordinator.client import CoordinatorClient

log = logging.getLogger(__name__)


def build_lineage(
    coordinator: CoordinatorClient, cube: str, versions: Sequence[Mapping[str, Any]], hook: RtolapHook
) -> Lineage | None:
    """Return the lineage of the versions that a build has made READY, as `ready_assets` describes them.

    `hook`: of the task's connection, which says where cubes are asked for.
    """
    if not versions or not is_collected():
        return None
    try:
        table = coordinator.table(coordinator.cube(cube).definition["table"])
        topic = _topic(table.get("kafka_cluster", DEFAULT_KAFKA_CLUSTER), table["topic"])
        last = versions[-1]
        location = coordinator.segment(cube, last["segment"]).location
        settings = Settings()
        also = _in_sql(hook, settings, DATABASE, cube)
        made = "" if location is None else history_folder(location)
        at = folder_dataset(settings.object_store, made) if made else also
        version = f"{last['segment']}/v{last['version']}"
        return Lineage((NamedDataset(topic),), (NamedDataset(at, version, also),))
    except (RtolapError, AirflowException):
        log.warning("the lineage of %s cannot be found out", cube, exc_info=True)
        return None


def load_lineage(result: Mapping[str, Any], hook: RtolapHook) -> Lineage | None:
    """Return the lineage of a `LoadedSensor` by its result. `hook`: of the sensor's connection."""
    if not is_collected():
        return None
    database, table = result["database"], result["table"]
    try:
        topic = _topic(result["kafka_cluster"], result["topic"])
        if result["target"] == "rtolap":
            at = _in_sql(hook, Settings(), database, table)
        else:
            at = foreign_dataset(result["target"], result["server"], database, table)
    except (RtolapError, AirflowException):
        log.warning("the lineage of %s cannot be found out", result["table"], exc_info=True)
        return None
    version = ",".join(f"{partition}:{offset}" for partition, offset in result["loaded"].items())
    return Lineage((NamedDataset(topic),), (NamedDataset(at, version),))


def _in_sql(hook: RtolapHook, settings: Settings, database: str, table: str) -> DatasetName:
    """Return the name of a table of the query service that the connection leads to, so that tasks on any
    worker name it alike. Raises DefinitionError where the connection does not say where that is."""
    host = urlsplit(hook.endpoints.query_service()).hostname
    if host is None or host == settings.called_at() or is_unspecified(host):
        host = settings.named_at()
    return sql_dataset(host, settings.query_mysql_port, database, table)


def _topic(cluster: str, topic: str) -> DatasetName:
    return topic_dataset(open_kafka(cluster).cluster.servers, topic)
