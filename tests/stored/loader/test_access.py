"""Which endpoints a loader sends to, and whom it trusts them by."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.model.loader import Loader, LoaderSink
from rtolap.stored.loader.assembly import sink_of


def loader(password: Path, *urls: str, ca_file: Path | None = None) -> Loader:
    ca = None if ca_file is None else str(ca_file)
    sink = LoaderSink(urls=urls, user="loader", password_file=str(password), ca_file=ca)
    return Loader(name="j", topic="t", database="d", table="t", sink=sink)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("open sesame")
    return path


def test_the_clusters_authority_is_for_the_clusters_endpoints(tmp_path: Path, password: Path) -> None:
    settings = Settings(
        stream_load_ca=tmp_path / "of the cluster", stream_load_endpoints="https://127.0.0.1:9"
    )
    with pytest.raises(DefinitionError, match="of the cluster"):
        sink_of(loader(password), settings)
    with sink_of(loader(password, "https://elsewhere:9"), settings):
        pass
    with pytest.raises(DefinitionError, match="of the loader"):
        sink_of(loader(password, ca_file=tmp_path / "of the loader"), settings)
