"""Buttons on a task's page. They lead to this plugin's own routes, which ask Airflow who is looking."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

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


class SegmentsLink(BaseOperatorLink):
    name = "Segments"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        cube = getattr(operator, "cube", "")
        return f"{_base()}/dags/{quote(ti_key.dag_id, safe='')}/cubes/{quote(str(cube), safe='')}/segments"
