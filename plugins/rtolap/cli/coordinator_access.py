"""The coordinator as the settings name it, for commands."""

from __future__ import annotations

from rtolap.base.settings import Settings
from rtolap.wire.coordinator_client import CoordinatorClient


def coordinator_client() -> CoordinatorClient:
    settings = Settings()
    return CoordinatorClient(settings.coordinator_urls(), settings.token())
