"""From definition files to the coordinator, in the order in which definitions need each other."""

from __future__ import annotations

import msgspec

from rtolap.model.yaml_files import Definitions
from rtolap.wire.coordinator_client import CoordinatorClient


def create_all(client: CoordinatorClient, definitions: Definitions, *, enable: bool) -> list[tuple[str, str]]:
    """(kind, name) of everything in the order of creation."""
    created: list[tuple[str, str]] = []
    for name, table in definitions.tables.items():
        client.create_table(msgspec.to_builtins(table))
        created.append(("table", name))
    for name, lookup in definitions.lookups.items():
        client.create_lookup(msgspec.to_builtins(lookup))
        created.append(("lookup", name))
    for name, application in definitions.applications.items():
        client.create_application(msgspec.to_builtins(application))
        created.append(("application", name))
    for name, cube in definitions.cubes.items():
        client.create_cube(msgspec.to_builtins(cube))
        if enable:
            client.enable_cube(name)
        created.append(("cube", name))
    return created
