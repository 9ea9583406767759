"""Jolokia agents of real brokers, set up as docs/fleet.md advises, and the file of sources of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rtolap.base.files import checkout
from rtolap.stack.ports import free_port

from tests.support.fleet.brokers import Brokers
from tests.support.fleet.jmx_agents import jolokia_agent

USER, PASSWORD = "monitor", "s3cret-of-the-agents"
_HOST = "127.0.0.1"


class Agents:
    """`jvm_options` is what `Brokers` takes. Passwords stand in files, never in a command."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._jar = jolokia_agent()
        self._ports: dict[int, int] = {}
        self.password_file = folder / "password"
        self.password_file.write_text(PASSWORD)
        self.password_file.chmod(0o600)

    def url(self, node: int) -> str:
        return f"http://{_HOST}:{self._ports[node]}/jolokia"

    def jvm_options(self, node: int) -> Sequence[str]:
        port = self._ports[node] = free_port(set(self._ports.values()))
        root = checkout()
        assert root is not None
        config = self._folder / f"agent{node}.properties"
        config.write_text(
            f"host={_HOST}\nport={port}\nuser={USER}\npassword={PASSWORD}\n"
            f"policyLocation=file://{root / 'include' / 'fleet' / 'jolokia-access.xml'}\n"
        )
        config.chmod(0o600)
        return (f"-javaagent:{self._jar}=config={config}",)

    def write_sources(self, path: Path, brokers: Brokers) -> Path:
        lines = [
            f"  {node}: {{jolokia: '{self.url(node)}', logs: ['{brokers.servers[node].log_path}']}}"
            for node in brokers.ids
        ]
        access = f"access: {{user: {USER}, password: {{file: '{self.password_file}'}}}}"
        path.write_text("\n".join(["brokers:", *lines, access, ""]))
        path.chmod(0o600)
        return path
