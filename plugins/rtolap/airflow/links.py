"""Buttons on a task's page lead to this plugin's own routes, which ask Airflow who the user is."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

URL_PREFIX = "/rtolap"
PAGE_PATH = "/plugin/rtolap"

# Of what an operator works on: its attribute → the view of the page, and the parameter that names it there.
_VIEWS = (
    ("cube", "cubes", "cube"),
    ("subscription", "capture", "name"),
    ("peer", "capture", "name"),
    ("loader", "loaders", "name"),
    ("receiver_id", "receivers", "name"),
    ("cluster", "fleet", "cluster"),
)


def _airflow() -> str:
    url = conf.get("api", "base_url", fallback="http://localhost:8080")
    return str(url).rstrip("/")


def _base() -> str:
    return _airflow() + URL_PREFIX


class PageLink(BaseOperatorLink):
    """A link to what the task works on, in the page: a cube, a subscription, a loader, a Kafka cluster."""

    name = "In rtolap"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        for attribute, view, parameter in _VIEWS:
            value = getattr(operator, attribute, None)
            if value:
                return f"{_airflow()}{PAGE_PATH}?{urlencode({'view': view, parameter: str(value)})}"
        return f"{_airflow()}{PAGE_PATH}"


class _OfDag(BaseOperatorLink):
    """A link to a route below the DAG of the task: `path`, in which the operator's `attribute` stands."""

    attribute: ClassVar[str]
    path: ClassVar[str]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        of = quote(str(getattr(operator, self.attribute, "")), safe="")
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/{self.path.format(of)}"


class ProcessLogLink(_OfDag):
    name = "Process log"
    attribute, path = "process_key", "processes/{}/log"


class LoaderProcessesLink(_OfDag):
    """A link of a loader's task: its processes, and the shares of each."""

    name = "Processes"
    attribute, path = "loader", "loaders/{}/processes"


class ConsumersLink(_OfDag):
    """A link of a subscription's task: its consumers, and the shares of each."""

    name = "Consumers"
    attribute, path = "subscription", "subscriptions/{}/consumers"


class SegmentsLink(_OfDag):
    name = "Segments"
    attribute, path = "cube", "cubes/{}/segments"


class WindowLink(BaseOperatorLink):
    """A link of tasks about a window: of an `application` and `window_end`, or of a `cube` and `segment`."""

    name = "What the window waits for"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        names = ("application", "window_end", "lateness_ms", "cube", "segment")
        named = {name: str(value) for name in names if (value := getattr(operator, name, None)) is not None}
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/window?{urlencode(named)}"
