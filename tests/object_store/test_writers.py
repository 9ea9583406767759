"""Whoever writes first into an empty store leaves one that is still taken for ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.doctor.storage import PROBES, look_at_store
from rtolap.fleet.operations import cluster
from rtolap.object_store.store import LAYOUT_FOLDERS, open_store

from tests.support.paths import PROJECT


def test_a_store_that_the_doctor_has_looked_at_can_be_claimed(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    assert [found.outcome for found in look_at_store(store, tmp_path.as_uri())] == ["ok"]
    store.claim()
    assert store.is_claimed()


@pytest.mark.parametrize("folder", sorted({cluster._FOLDER, PROBES, *LAYOUT_FOLDERS}))
def test_a_store_with_one_of_our_folders_can_be_claimed(tmp_path: Path, folder: str) -> None:
    store = open_store(tmp_path.as_uri())
    store.write(f"{folder}/of/somebody", b"1")
    store.claim()
    assert store.is_claimed()


def test_a_store_of_others_is_not_taken(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.write("fleets/of/somebody", b"1")
    with pytest.raises(DefinitionError, match="found fleets"):
        store.claim()


def test_every_folder_that_a_module_names_by_a_constant_is_known() -> None:
    """Of modules that open or are given a store: constants that name a folder of it."""
    found = set()
    for path in (PROJECT / "plugins" / "rtolap").rglob("*.py"):
        text = path.read_text()
        if "object_store.store import" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                name, value = ast.unparse(node.targets[0]), node.value.value
                if name.strip("_") in {"FOLDER", "PROBES", "ROOT"} and isinstance(value, str):
                    found.add(value.partition("/")[0])
    assert {"fleet", "doctor"} <= found <= LAYOUT_FOLDERS
