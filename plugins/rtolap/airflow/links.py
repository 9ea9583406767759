"""Buttons on a task's page lead to this plugin's own routes, which ask Airflow who the user is."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

URL_PREFIX = "/rtolap"


def _base() -> str:
    url = conf.get("api", "base_url", fallback="http://localhost:8080")
    return str(url).rstrip("/") + URL_PREFIX


class ProcessLogLink(BaseOperatorLink):
    name = "Process log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        key = getattr(operator, "process_key", "")
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/processes/{quote(key, safe='')}/log"


class LoaderProcessesLink(BaseOperatorLink):
    """A link of a loader's task: its processes, and the shares of each."""

    name = "Processes"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        loader = getattr(operator, "loader", "")
        return (
            f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/loaders/{quote(str(loader), safe='')}/processes"
        )


class ConsumersLink(BaseOperatorLink):
    """A link of a subscription's task: its consumers, and the shares of each."""

    name = "Consumers"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        name = quote(str(getattr(operator, "subscription", "")), safe="")
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/subscriptions/{name}/consumers"


class SegmentsLink(BaseOperatorLink):
    name = "Segments"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        cube = getattr(operator, "cube", "")
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/cubes/{quote(str(cube), safe='')}/segments"


class WindowLink(BaseOperatorLink):
    """A link of tasks about a window: of an `application` and `window_end`, or of a `cube` and `segment`."""

    name = "What the window waits for"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        names = ("application", "window_end", "lateness_ms", "cube", "segment")
        named = {name: str(value) for name in names if (value := getattr(operator, name, None)) is not None}
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/window?{urlencode(named)}"
