"""`rtolap sep serve`: where its ports listen, and by which name region servers reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rtolap.base.errors import NotFound
from rtolap.cli.main import app
from rtolap.cli.sep import serve
from typer.testing import CliRunner

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


@pytest.mark.parametrize(
    ("options", "bind"), [([], "0.0.0.0"), (["--bind", "127.0.0.2"], "127.0.0.2"), (["--bind", "::1"], "::1")]
)
def test_the_ports_listen_on_the_address_of_bind_whatever_name_they_are_reached_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], bind: str
) -> None:
    asked: dict[str, Any] = {}

    def open_process(*_: object, **settings: Any) -> None:
        asked.update(settings)
        raise NotFound("there is no subscription orders")

    monkeypatch.setattr(serve, "ZooKeeperStore", lambda *_, **__: MemoryStore(MemoryEnsemble()))
    monkeypatch.setattr(serve, "open_process", open_process)
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("RTOLAP_HBASE", "zk1:2181/hbase")
    command = ["sep", "serve", "orders", "--host", "consumer.example", *options]
    assert isinstance(CliRunner().invoke(app, command).exception, NotFound)
    assert (asked["bind"], asked["host"]) == (bind, "consumer.example")
