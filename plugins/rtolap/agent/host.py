"""The set-up of a host: the values that requests are checked against."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rtolap.agent.spark_allowed import SparkAllowed


class Host(msgspec.Struct, frozen=True):
    """The parts of this host that a request may use: the agent's own settings, never the caller's.

    Attributes:
        jobs_dir: Folder of the Spark jobs that may run.
        data_dir: Folder below which receivers store their data.
        object_store: URI of the store whose segments are built.
        spark_master: Master on which builds run, besides `local`.
        spark_host: Address of this host at which Spark drivers listen and are called back. Empty: as the
            host's spark-defaults.conf says.
        fleet_sources: File of the sources of brokers' metrics. None where the host declares none.
        spark_allowed: Settings and jars of Spark that its operator allows beyond those that every agent does.
        spark_warm_s: Seconds for which a driver waits for the next build; 0: each has a driver of its own.
    """

    jobs_dir: Path
    data_dir: Path
    object_store: str
    spark_master: str = "local[2]"
    spark_host: str = "127.0.0.1"
    fleet_sources: Path | None = None
    spark_allowed: SparkAllowed = SparkAllowed()
    spark_warm_s: float = 0.0
