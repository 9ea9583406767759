"""The one file here that Airflow runs as a plugin; `.airflowignore` keeps it out of `rtolap/`.

An installed package registers the same plugin by its entry point: then this file adds nothing.
"""

from importlib.metadata import entry_points

if not any(point.name == "rtolap" for point in entry_points(group="airflow.plugins")):
    from rtolap.airflow.plugin import RtolapPlugin

    __all__ = ["RtolapPlugin"]
