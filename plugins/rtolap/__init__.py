"""rtolap: real-time OLAP on Kafka, orchestrated by Airflow, built by Spark.

`__version__` is that of the installed distribution, which is made of the tag it was built from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

UNINSTALLED_VERSION = "0.1.dev0"  # of a copy of the files in Airflow's plugins folder


def __getattr__(name: str) -> str:
    """Look the version up when it is wanted: a short command does without importlib.metadata."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rtolap")
    except PackageNotFoundError:
        return UNINSTALLED_VERSION
