"""Brings definition files to the cluster, in the order in which definitions need each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from rtolap.base.errors import DefinitionError, RtolapError, Unavailable
from rtolap.model.loader import Loader
from rtolap.model.problems import raise_all
from rtolap.model.validation.lookup import stored_lookup_problems
from rtolap.model.yaml_files import Definitions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName

log = logging.getLogger(__name__)

Created = list[tuple[str, str]]  # (kind, name), in the order of creation


@dataclass(frozen=True)
class Takers:
    """The services that take the kinds of definitions; None where there is none for a kind. `declare_loader`
    returns what takes back what it has done.
    """

    coordinator: CoordinatorClient | None = None
    endpoints: StoredTablesClient | None = None
    declare_loader: Callable[[Loader], Callable[[], object]] | None = None


def wants_coordinator(definitions: Definitions) -> bool:
    return bool(definitions.tables or definitions.lookups or definitions.cubes or definitions.applications)


def wants_endpoints(definitions: Definitions) -> bool:
    """Return True if the definitions have stored tables, or lookups that name stored tables."""
    return bool(definitions.stored_tables) or any(
        lookup.stored_table is not None for lookup in definitions.lookups.values()
    )


def create_all(takers: Takers, definitions: Definitions, *, enable: bool, change: bool = False) -> Created:
    """Create all definitions. Raises DefinitionError, before anything is created, where no taker of a kind is
    there.

    `change`: applications that exist with another definition get this one. Stored tables that are there with
    the same definition stay, with another one they are refused; loaders follow their definition.

    What fails leaves everything as it was: what this call made is dropped again, applications and loaders
    that it changed get back the definition that they had, cubes that it enabled are disabled. What cannot be
    taken back is logged, by name.
    """
    _check(takers, definitions)
    fresh = _Fresh(takers, definitions)
    try:
        return _create(takers, definitions, fresh, enable=enable, change=change)
    except RtolapError:
        fresh.take_back()
        raise


class _Fresh:
    """The definitions that are made or changed by this call, with how each is taken back."""

    def __init__(self, takers: Takers, definitions: Definitions) -> None:
        self._undo: list[tuple[str, Callable[[], object]]] = []
        self._takers = takers
        self._known: set[tuple[str, str]] = set()
        self._enabled: set[str] = set()
        client, endpoints = takers.coordinator, takers.endpoints
        if client is not None:
            self._known |= {("table", name) for name in client.tables()}
            self._known |= {("lookup", name) for name in client.lookups()}
            self._known |= {("application", name) for name in client.applications()}
            cubes = client.cubes()
            self._known |= {("cube", cube.name) for cube in cubes}
            self._enabled |= {cube.name for cube in cubes if cube.enabled}
        if endpoints is not None and definitions.stored_tables:
            self._known |= {("stored_table", table.definition.qualified_name) for table in endpoints.tables()}

    def made(self, kind: str, name: str) -> None:
        if (kind, name) in self._known:
            return
        client, endpoints = self._takers.coordinator, self._takers.endpoints
        if client is not None and kind == "cube":
            self.changed(f"cube {name}", partial(client.drop_cube, name))
        elif client is not None and kind != "stored_table":
            drops = {
                "table": client.drop_table,
                "lookup": client.drop_lookup,
                "application": client.drop_application,
            }
            self.changed(f"{kind} {name}", partial(drops[kind], name))
        elif endpoints is not None:
            self.changed(f"stored table {name}", partial(endpoints.drop, TableName(*name.split(".", 1))))

    def enabling(self, cube: str) -> None:
        """Note that a cube is about to be enabled: receivers may consume even if the answer is an error."""
        if self._takers.coordinator is not None and cube not in self._enabled:
            self.changed(f"enabled cube {cube}", partial(self._takers.coordinator.disable_cube, cube))

    def changed(self, change: str, undo: Callable[[], object]) -> None:
        self._undo.append((change, undo))

    def take_back(self) -> None:
        """Take the changes back, the last one first."""
        for change, undo in reversed(self._undo):
            try:
                undo()
            except RtolapError as error:
                log.warning("%s could not be taken back: %s", change, error)
                if isinstance(error, Unavailable):
                    return  # nobody answers any more: each further one would wait as long


def _create(
    takers: Takers, definitions: Definitions, fresh: _Fresh, *, enable: bool, change: bool
) -> Created:
    created: Created = []
    if takers.endpoints is not None:
        for name, stored in definitions.stored_tables.items():
            takers.endpoints.create(stored)
            fresh.made("stored_table", name)
            created.append(("stored_table", name))
        _check_lookups(takers.endpoints, definitions)
    if takers.coordinator is not None:
        created += _create_cubes(takers.coordinator, definitions, fresh, enable=enable, change=change)
    if takers.declare_loader is not None:
        for name, loader in definitions.loaders.items():
            fresh.changed(f"loader {name}", takers.declare_loader(loader))
            created.append(("loader", name))
    return created


def _check(takers: Takers, definitions: Definitions) -> None:
    lookups = [name for name, lookup in definitions.lookups.items() if lookup.stored_table is not None]
    missing: list[tuple[str, Sequence[str]]] = []
    if takers.coordinator is None and wants_coordinator(definitions):
        names = (*definitions.tables, *definitions.lookups, *definitions.cubes, *definitions.applications)
        missing.append(("a coordinator", names))
    if takers.endpoints is None and wants_endpoints(definitions):
        missing.append(("a front end", (*definitions.stored_tables, *lookups)))
    if takers.declare_loader is None and definitions.loaders:
        missing.append(("a ledger for loaders", tuple(definitions.loaders)))
    if missing:
        raise DefinitionError(
            "some definitions cannot be created from here",
            expected=" and ".join(endpoint for endpoint, _ in missing),
            found="; ".join(", ".join(names) for _, names in missing),
            action="keep them in another folder and create them with `rtolap create`",
        )


def _check_lookups(endpoints: StoredTablesClient, definitions: Definitions) -> None:
    for name, lookup in definitions.lookups.items():
        if lookup.stored_table is not None:
            database, _, table = lookup.stored_table.partition(".")
            schema = endpoints.table(TableName(database, table)).schema
            raise_all(f"lookup {name}", stored_lookup_problems(lookup, schema))


def _create_cubes(
    client: CoordinatorClient, definitions: Definitions, fresh: _Fresh, *, enable: bool, change: bool
) -> Created:
    created: Created = []
    for name, table in definitions.tables.items():
        client.create_table(msgspec.to_builtins(table))
        fresh.made("table", name)
        created.append(("table", name))
    for name, lookup in definitions.lookups.items():
        client.create_lookup(msgspec.to_builtins(lookup))
        fresh.made("lookup", name)
        created.append(("lookup", name))
    present = set(client.applications()) if change else set()
    for name, application in definitions.applications.items():
        definition = msgspec.to_builtins(application)
        if name in present:
            before = client.application(name).definition
            client.change_application(name, definition)
            fresh.changed(f"application {name}", partial(client.change_application, name, before))
        else:
            client.create_application(definition)
            fresh.made("application", name)
        created.append(("application", name))
    for name, cube in definitions.cubes.items():
        client.create_cube(msgspec.to_builtins(cube))
        fresh.made("cube", name)
        if enable:
            fresh.enabling(name)
            client.enable_cube(name)
        created.append(("cube", name))
    return created
