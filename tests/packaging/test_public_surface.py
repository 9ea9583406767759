"""Tests of what may be imported from outside: two modules, and what each of them exports."""

from __future__ import annotations

from types import ModuleType

import pytest
from rtolap import dbapi, watermark_client

PEP_249 = {
    *("apilevel", "threadsafety", "paramstyle", "connect", "Connection", "Cursor"),
    *("Warning", "Error", "InterfaceError", "DatabaseError", "DataError", "OperationalError"),
    *("IntegrityError", "InternalError", "ProgrammingError", "NotSupportedError"),
}


def test_the_db_api_has_the_names_of_pep_249_and_no_others() -> None:
    assert set(dbapi.__all__) == PEP_249


@pytest.mark.parametrize("name", sorted(name for name in PEP_249 if name.endswith("Error")))
def test_errors_of_the_db_api_have_one_base(name: str) -> None:
    assert issubclass(getattr(dbapi, name), dbapi.Error)


def test_the_watermark_client_exports_its_client() -> None:
    assert watermark_client.__all__ == ["WatermarkClient", "unfinished"]


@pytest.mark.parametrize("module", [dbapi, watermark_client], ids=lambda module: module.__name__)
def test_what_is_exported_is_there_and_what_is_made_here_is_exported_or_private(module: ModuleType) -> None:
    exported = set(module.__all__)
    assert all(getattr(module, name).__doc__ for name in exported)
    made_here = {
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    }
    assert {name for name in made_here if not name.startswith("_")} <= exported
