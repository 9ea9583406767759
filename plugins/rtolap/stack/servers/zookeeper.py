"""A ZooKeeper server out of the jars that pyspark ships."""

from __future__ import annotations

import socket
from pathlib import Path

from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.java import LEAN_FLAGS, archive_flags, class_path, properties, write_log4j
from rtolap.stack.ports import HOST
from rtolap.stack.spec import ProcessSpec

_TICK_MS = 500
_PROBE_TIMEOUT_S = 2.0


def zookeeper_spec(artifacts: JavaArtifacts, folder: Path, port: int) -> ProcessSpec:
    """Return the server's process. Session time-outs are between 2 and 20 ticks: 1 s and 10 s here."""
    folder = folder.absolute()

    def prepare() -> None:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        write_log4j(folder, "warn")
        (folder / "zoo.cfg").write_text(zookeeper_config(folder / "data", port))

    return ProcessSpec(
        name="zookeeper",
        folder=folder,
        address=f"{HOST}:{port}",
        ports=(port,),
        argv=(
            artifacts.java,
            "-Xmx64m",
            *LEAN_FLAGS,
            *archive_flags("zookeeper", artifacts.java, artifacts.zookeeper),
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            *("-cp", class_path(artifacts.zookeeper)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zoo.cfg"),
        ),
        prepare=prepare,
        ready=lambda _: zookeeper_missing(HOST, port),
        ready_timeout_s=60,
    )


def zookeeper_config(data: Path, port: int) -> str:
    return properties(
        {
            "tickTime": _TICK_MS,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": data,
            "clientPort": port,
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "maxClientCnxns": 0,
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
    )


def zookeeper_missing(host: str, port: int) -> str | None:
    """Return None when it serves: `srvr` names its mode."""
    try:
        with socket.create_connection((host, port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError as error:
        return f"srvr on {host}:{port}: {error}"
    return None if b"Mode:" in answer else f"srvr on {host}:{port} names no mode"
