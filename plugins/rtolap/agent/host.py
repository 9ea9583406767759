"""The parts of this host that a request may touch: the agent's own settings, never the caller's."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Host(msgspec.Struct, frozen=True):
    """
    jobs_dir       Spark jobs that may run
    data_dir       receivers keep their data below it
    object_store   the one whose segments are built
    spark_master   where builds run, beside `local`
    """

    jobs_dir: Path
    data_dir: Path
    object_store: str
    spark_master: str = "local[2]"
