"""The metadata of a cluster whose services run, for a test that looks at it or changes it as they do."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.base.settings import Settings
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.metadata.signed import SignedStore

_PREFIX = "RTOLAP_"


def cluster_settings(environment: Mapping[str, str], **changes: object) -> Settings:
    """Return the settings that a service with these variables has; `changes` by their names in `Settings`."""
    known = {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(_PREFIX)
    }
    fields = {name: value for name, value in known.items() if name in Settings.model_fields}
    return Settings.model_validate({**fields, **changes})


def store_of(environment: Mapping[str, str], **changes: object) -> SignedStore:
    """Open the store of the services with these variables. The caller closes it."""
    return open_cluster_store(cluster_settings(environment, **changes))
