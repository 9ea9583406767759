"""Airflow's REST interface, as far as the demonstration needs it."""

from __future__ import annotations

import time
from contextlib import suppress

import httpx

from rtolap.base.errors import Unavailable
from rtolap.base.tls import trust

_TIMEOUT_S = 10.0
_PARSE_TIMEOUT_S = 120.0  # a new Airflow reads its DAGs first
_POLL_S = 1.0
# Airflow's servers close a connection that has rested for 5 s, also as a request comes.
_LIMITS = httpx.Limits(keepalive_expiry=2.0)


class AirflowApi:
    """Signs in with a password, as `SimpleAuthManager` of the local stack takes it."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._login = {"username": user, "password": password}
        self._http = httpx.Client(
            base_url=url, timeout=_TIMEOUT_S, limits=_LIMITS, trust_env=False, verify=trust(None)
        )

    def __enter__(self) -> AirflowApi:
        try:
            token = self._http.post("/auth/token", json=self._login).raise_for_status().json()["access_token"]
        except httpx.HTTPError as error:
            raise Unavailable("Airflow does not sign us in", found=str(error)) from error
        self._http.headers["Authorization"] = f"Bearer {token}"
        return self

    def __exit__(self, *unused: object) -> None:
        self._http.close()

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run a DAG, as soon as it knows it. Raises Unavailable after two minutes.

        Assets are watched for it once its file is read again: soon, as that is asked for, else within 30 s.
        """
        deadline = time.monotonic() + _PARSE_TIMEOUT_S
        while True:
            try:
                response = self._http.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": False})
            except httpx.TransportError as error:
                problem = str(error)
            else:
                if response.is_success:
                    self._read_again(response.json().get("file_token"))
                    return
                problem = f"{response.status_code} {response.text[:200]}"
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Airflow does not start the DAG {dag_id}",
                    found=problem,
                    action="look at `rtolap stack logs airflow-dag-processor`",
                )
            time.sleep(_POLL_S)

    def _read_again(self, file_token: str | None) -> None:
        with suppress(httpx.TransportError):  # it is read soon anyway
            self._http.put(f"/api/v2/parseDagFile/{file_token}")
