"""The registry that a command goes by, and who gives the command."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.model.fleet import KafkaFleet
from rtolap.model.yaml_files import read_definitions

RegistryOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--registry", help="Files or folders that declare the fleet; by default RTOLAP_INCLUDE_DIR."
    ),
]
ByOption = Annotated[str | None, typer.Option("--by", help="Who; by default the user of this shell.")]


def read_registry(paths: list[Path] | None, settings: Settings) -> KafkaFleet:
    """Raises DefinitionError where there is none, or more than one."""
    fleets = read_definitions(*(paths or [settings.include_dir])).fleets
    if len(fleets) != 1:
        raise DefinitionError(
            "one fleet is to be declared",
            expected="one document of kind: kafka_fleet",
            found=", ".join(sorted(fleets)) or "none",
            action="name its file with --registry",
        )
    (fleet,) = fleets.values()
    return fleet


def operator(settings: Settings, by: str | None) -> str:
    """Return who changes something. Whoever may read the cluster's token is an operator; others get a
    DefinitionError."""
    settings.token()
    return by or getpass.getuser()
