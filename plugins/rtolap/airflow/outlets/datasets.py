"""Datasets of OpenLineage: what tasks read and write, by the names that its naming specification gives.

    a topic             kafka://broker:9092         orders
    history of a cube   s3://bucket                 rtolap/history/sales/0f3c…    also: the cube in SQL
    a stored table      mysql://query:7306          web.hits
    elsewhere           doris://frontend:8030       web.hits

The first of a cluster's bootstrap servers names it. Cubes and stored tables are named as SQL clients reach
them, at the query service; tables of another server by its first address, since the specification names
neither Doris nor StarRocks.

Airflow's provider of OpenLineage asks an operator once its task has succeeded. It is optional: nothing here
needs it before it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from rtolap.base.addresses import host_port

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

KAFKA_PORT = 9092  # of a bootstrap server that names none
DATABASE = "rtolap"  # the database of SQL that holds the cubes


class DatasetName(NamedTuple):
    """A dataset by the specification: a source, and a name within it."""

    namespace: str
    name: str


class NamedDataset(NamedTuple):
    """A dataset that a task has read or written.

    Attributes:
        version: what was written, in the words of the source; "" where that is unknown.
        also: another name of the same data.
    """

    at: DatasetName
    version: str = ""
    also: DatasetName | None = None


class Lineage(NamedTuple):
    """The datasets that a task has read, and those that it has written."""

    inputs: tuple[NamedDataset, ...] = ()
    outputs: tuple[NamedDataset, ...] = ()


def topic_dataset(bootstrap_servers: str, topic: str) -> DatasetName:
    """Return the dataset of a topic. `bootstrap_servers` is that setting of Kafka's clients."""
    first = bootstrap_servers.split(",", maxsplit=1)[0].strip()
    _, _, address = first.rpartition("://")  # a listener's name may stand before it
    named = urlsplit(f"//{address}")
    return DatasetName(f"kafka://{host_port(named.hostname or '', named.port or KAFKA_PORT)}", topic)


def folder_dataset(object_store: str, folder: str) -> DatasetName:
    """Return the dataset of a folder below the address of the object store."""
    at = urlsplit(object_store)
    path = f"{at.path.rstrip('/')}/{folder.strip('/')}"
    if at.scheme in ("", "file"):
        return DatasetName("file" if not at.netloc else f"file://{at.netloc}", path)
    if at.scheme == "hdfs":
        return DatasetName(f"hdfs://{at.netloc}", path)
    return DatasetName(f"{at.scheme}://{at.netloc}", path.lstrip("/"))


def sql_dataset(host: str, port: int, database: str, table: str) -> DatasetName:
    """Return the dataset of a table at a server that speaks MySQL's protocol."""
    return DatasetName(f"mysql://{host_port(host, port)}", f"{database}.{table}")


def foreign_dataset(target: str, url: str, database: str, table: str) -> DatasetName:
    """Return the dataset of a table of another server. `target` is its kind, `url` that of a front end."""
    return DatasetName(f"{target}://{urlsplit(url).netloc}", f"{database}.{table}")


def history_folder(location: str) -> str:
    """Return the folder of a cube's history that holds the version at `location`."""
    return "/".join(location.strip("/").split("/")[:-2])


def is_collected() -> bool:
    """Return True if the provider of OpenLineage is installed and has somewhere to send to."""
    try:
        conf = import_module("airflow.providers.openlineage.conf")
    except ImportError:
        return False
    return not conf.is_disabled()


def operator_lineage(lineage: Lineage | None) -> OperatorLineage[Any, Any] | None:
    """Return the lineage as the provider takes it from an operator; None for a task that has made nothing."""
    if lineage is None:
        return None
    made: OperatorLineage[Any, Any] = import_module(
        "airflow.providers.openlineage.extractors"
    ).OperatorLineage(inputs=_datasets(lineage.inputs), outputs=_datasets(lineage.outputs))
    return made


def _datasets(named: Sequence[NamedDataset]) -> list[Dataset]:
    client = import_module("openlineage.client.event_v2")
    kinds = import_module("openlineage.client.facet_v2")
    found: list[Dataset] = []
    for each in named:
        facets: dict[str, Any] = {}
        if each.version:
            version = kinds.dataset_version_dataset
            facets["version"] = version.DatasetVersionDatasetFacet(datasetVersion=each.version)
        if each.also is not None:
            links = kinds.symlinks_dataset
            other = links.Identifier(each.also.namespace, each.also.name, "TABLE")
            facets["symlinks"] = links.SymlinksDatasetFacet(identifiers=[other])
        found.append(client.Dataset(namespace=each.at.namespace, name=each.at.name, facets=facets))
    return found
