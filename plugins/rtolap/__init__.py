"""rtolap: real-time OLAP on Kafka, orchestrated by Airflow, built by Spark.

    base, model, events              errors and settings; definitions; records → columns
    columnar, scan                   arithmetic on columns; filtering and grouping them
    column_types, aggregates         types of columns; a module for each aggregate function
    kafka, object_store, metadata    Kafka; whole files; cluster state in ZooKeeper
    watermark, watermark_client      what windows may close; how applications report to it
    protocols                        messages and clients, through which services meet
    cubes, stored, query             rolled-up event streams; stored tables; SQL over both
    publish                          history as Iceberg tables, for other engines
    coordinator, agent               who consumes what; who starts processes
    sep, fleet                       HBase change capture; care of the Kafka brokers
    airflow, cli, dbapi              the faces: tasks, commands, Python
    stack, demo, draw                local servers; the demonstration; pictures
    backup                           the cluster's metadata in a file, and back
    doctor                           what is wrong with the servers of this host's settings
    project                          the first definitions of a topic, guessed from its records

docs/architecture.md draws which room may import which.

`__version__` is that of the installed distribution, which is made of the tag it was built from.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

UNINSTALLED_VERSION = "0.1.dev0"  # of a copy of the files in Airflow's plugins folder


def __getattr__(name: str) -> str:
    """Look the version up when it is wanted: a short command does without importlib.metadata."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("rtolap"))
    except metadata.PackageNotFoundError:
        return UNINSTALLED_VERSION
