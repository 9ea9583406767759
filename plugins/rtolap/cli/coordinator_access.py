"""The coordinator as the settings name it, for commands."""

from __future__ import annotations

from rtolap.base.settings import Settings
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.rest.request import RETRY_S, TIMEOUT_S


def coordinator_client(*, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S) -> CoordinatorClient:
    settings = Settings()
    return CoordinatorClient(
        settings.coordinator_urls(), settings.token(), timeout_s=timeout_s, retry_s=retry_s
    )
