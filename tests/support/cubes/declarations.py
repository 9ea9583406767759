"""Cubes that a test declares at a coordinator and drops again."""

from __future__ import annotations

import msgspec
from rtolap.model.cube import Cube
from rtolap.model.table import Table
from rtolap.protocols.coordinator.client import CoordinatorClient


def declare_cube(coordinator: CoordinatorClient, table: Table, cube: Cube) -> None:
    """Create both, and enable the cube."""
    coordinator.create_table(msgspec.to_builtins(table))
    coordinator.create_cube(msgspec.to_builtins(cube))
    coordinator.enable_cube(cube.name)


def drop_cube(coordinator: CoordinatorClient, table: str, cube: str) -> None:
    coordinator.disable_cube(cube)
    coordinator.drop_cube(cube)
    coordinator.drop_table(table)
