"""From definition files to the cluster, in the order in which definitions need each other."""

from __future__ import annotations

import msgspec

from rtolap.model.yaml_files import Definitions
from rtolap.wire.coordinator_client import CoordinatorClient
from rtolap.wire.stored_tables_client import StoredTablesClient


def create_all(
    client: CoordinatorClient, definitions: Definitions, *, enable: bool, change: bool = False
) -> list[tuple[str, str]]:
    """(kind, name) of everything in the order of creation. `change`: applications that exist with another
    definition get this one; nothing else can be changed in place."""
    created: list[tuple[str, str]] = []
    for name, table in definitions.tables.items():
        client.create_table(msgspec.to_builtins(table))
        created.append(("table", name))
    for name, lookup in definitions.lookups.items():
        client.create_lookup(msgspec.to_builtins(lookup))
        created.append(("lookup", name))
    present = set(client.applications()) if change else set()
    for name, application in definitions.applications.items():
        definition = msgspec.to_builtins(application)
        if name in present:
            client.change_application(name, definition)
        else:
            client.create_application(definition)
        created.append(("application", name))
    for name, cube in definitions.cubes.items():
        client.create_cube(msgspec.to_builtins(cube))
        if enable:
            client.enable_cube(name)
        created.append(("cube", name))
    return created


def create_stored(client: StoredTablesClient, definitions: Definitions) -> list[tuple[str, str]]:
    """(kind, `database.name`) of all stored tables. One that is there with the same definition stays; with
    another one it is refused."""
    created = []
    for name, table in definitions.stored_tables.items():
        client.create(table)
        created.append(("stored_table", name))
    return created
