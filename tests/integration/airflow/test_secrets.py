"""Secrets of a deployment: no process of it, whoever started it, shows one to who may look at processes."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from tests.support.hostile.process_secrets import readable, secret_words, showing

pytestmark = pytest.mark.integration


def test_no_process_carries_a_secret_in_its_environment_or_command_line(airflow: Any, receiver: None) -> None:
    """Airflow's parts, what they start, and the receivers that the agent starts for a task."""
    secrets = secret_words(airflow.around.layout.secrets)
    assert airflow.token in secrets
    parts = [psutil.Process(part.pid()) for part in airflow.components.values()]
    started = [child for part in parts for child in part.children(recursive=True)]
    for key in ("receiver.r0",):
        started += [psutil.Process(pid) for pid in airflow.started_for(key)]
    texts = readable({*parts, *started})
    assert len(texts) > len(parts)
    assert showing(texts.items(), secrets) == []


def test_the_token_is_used_all_the_same(airflow: Any, receiver: None) -> None:
    """Its file alone has it, and nobody but its owner may read that."""
    path = airflow.around.layout.secret("token")
    assert path.stat().st_mode & 0o777 == 0o600
    done = airflow.command("rtolap", "agent", "list")
    assert done.returncode == 0, done.stderr
    assert "receiver.r0" in done.stdout
