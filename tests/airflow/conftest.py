"""An agent of this process, and Airflow's connection to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from rtolap.agent.commands import Resolver

from tests.support.agent_harness import RunningAgent, running_agent


@pytest.fixture(scope="module")
def programs() -> Mapping[str, Resolver]:
    """What the agent may run beside its usual programs; for modules to override."""
    return {}


@pytest.fixture(scope="module")
def agent(
    tmp_path_factory: pytest.TempPathFactory, programs: Mapping[str, Resolver]
) -> Iterator[RunningAgent]:
    with running_agent(tmp_path_factory.mktemp("agent"), extra=programs) as running:
        yield running


@pytest.fixture
def connection(agent: RunningAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default one: to the agent, and to a coordinator that is not there."""
    extra = {"agent_url": agent.url, "coordinator_urls": "http://127.0.0.1:1"}
    value = {"conn_type": "rtolap", "password": agent.token, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps(value))
