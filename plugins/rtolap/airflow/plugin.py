"""The additions to Airflow's pages: links of tasks, the routes they lead to, and a check of the host.

A page elsewhere can give its own name the address of this machine, and query Airflow in the name of whoever
is signed in here. Names in RTOLAP_AIRFLOW_HOSTS are answered and no others; without it, Airflow answers any.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin
from starlette.middleware.trustedhost import TrustedHostMiddleware

from rtolap.airflow.links import URL_PREFIX, ProcessLogLink, SegmentsLink, WindowLink
from rtolap.airflow.routes import app
from rtolap.base.settings import Settings


def host_checks(hosts: str) -> list[dict[str, Any]]:
    """As `AirflowPlugin.fastapi_root_middlewares` wants them, for names separated by commas."""
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    if not names:
        return []
    check = {"allowed_hosts": names, "www_redirect": False}
    return [{"middleware": TrustedHostMiddleware, "kwargs": check, "name": "rtolap hosts"}]


class RtolapPlugin(AirflowPlugin):
    name = "rtolap"
    operator_extra_links: list[Any] = [ProcessLogLink(), SegmentsLink(), WindowLink()]  # noqa: RUF012 - as Airflow's class declares it
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": URL_PREFIX, "name": "rtolap"}]  # noqa: RUF012
    fastapi_root_middlewares: list[Any] = host_checks(Settings().airflow_hosts)
