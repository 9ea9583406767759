"""What rtolap adds to Airflow's web page: the links of its tasks and the routes they lead to."""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from rtolap.airflow.links import URL_PREFIX, ProcessLogLink, SegmentsLink, WindowLink
from rtolap.airflow.routes import app


class RtolapPlugin(AirflowPlugin):
    name = "rtolap"
    operator_extra_links: list[Any] = [ProcessLogLink(), SegmentsLink(), WindowLink()]  # noqa: RUF012 - as Airflow's class declares it
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": URL_PREFIX, "name": "rtolap"}]  # noqa: RUF012
