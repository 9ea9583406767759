"""HBase runs as a master, region servers and a ZooKeeper of its own, all in one JVM.

A master that starts region servers beside itself always starts a ZooKeeper too, so it does not use the
stack's. That is what stands between a source of changes and its readers elsewhere as well: two ensembles,
and one may be restarted without the other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from rtolap.stack.java import LEAN_FLAGS, class_path, hadoop_uri
from rtolap.stack.ports import HOST
from rtolap.stack.probes import exchange
from rtolap.stack.spec import ProcessSpec

REGION_SERVERS = 2

CLASS_PATH_FILE = "class_path"  # in the server's folder: for programs that use HBase's own client

# HBase's jars have a binding for the first log4j only
_LOG4J = """log4j.rootLogger={level},console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %p [%t] %c{{1}}: %m%n
"""
_WEB_FOLDERS = ("master", "regionserver", "static")


def hbase_spec(
    java: str,
    jars: Sequence[Path],
    folder: Path,
    master_port: int,
    zookeeper_port: int,
    *,
    info_port: int | None = None,
    region_servers: int = REGION_SERVERS,
    overrides: Mapping[str, object] | None = None,
) -> ProcessSpec:
    """Return how HBase is started. `info_port`: where the master's page and `/jmx` are served, which names
    the metrics of the whole JVM. `overrides`: keys of hbase-site.xml."""
    folder = folder.absolute()
    config = folder / "conf"
    settings = hbase_settings(folder / "data", master_port, zookeeper_port, region_servers)
    settings["hbase.master.info.port"] = -1 if info_port is None else info_port
    settings |= overrides or {}

    def prepare() -> None:
        for name in _WEB_FOLDERS:
            (config / "hbase-webapps" / name).mkdir(parents=True, exist_ok=True)
        (config / "log4j.properties").write_text(_LOG4J.format(level="WARN"))
        (config / "hbase-site.xml").write_text(site_xml(settings))
        (folder / CLASS_PATH_FILE).write_text(class_path([config, *jars]))

    return ProcessSpec(
        name="hbase",
        folder=folder,
        address=f"{HOST}:{zookeeper_port}",
        ports=(zookeeper_port, master_port, *(() if info_port is None else (info_port,))),
        argv=(
            java,
            "-Xmx512m",
            *LEAN_FLAGS,
            # its metrics' page looks into the class loader, its buffers into those of Java
            *("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED"),
            f"-Djava.io.tmpdir={folder}",
            *("-cp", class_path([config, *jars])),
            "org.apache.hadoop.hbase.master.HMaster",
            *("start", f"--localRegionServers={region_servers}"),
        ),
        prepare=prepare,
        ready=lambda _: hbase_missing(HOST, master_port),
        ready_timeout_s=120,
        # its orderly end takes 20 s and more; whatever it has acknowledged is in its write-ahead logs
        stop_timeout_s=2,
    )


def hbase_settings(
    data: Path, master_port: int, zookeeper_port: int, region_servers: int
) -> dict[str, object]:
    return {
        "hbase.rootdir": hadoop_uri(data / "hbase"),
        "hbase.tmp.dir": data / "tmp",
        # with checksums, what was synced to the write-ahead log is not yet in the file when it is killed
        "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.zookeeper.property.clientPort": zookeeper_port,
        "hbase.zookeeper.quorum": HOST,
        "hbase.master.hostname": "localhost",
        "hbase.master.ipc.address": HOST,
        "hbase.master.port": master_port,
        "hbase.regionserver.hostname": "localhost",
        "hbase.regionserver.ipc.address": HOST,
        "hbase.regionserver.port": 0,
        "hbase.master.info.bindAddress": HOST,
        "hbase.regionserver.info.port": -1,
        "hbase.regionserver.handler.count": 10,
        # begin as soon as all are there, not after seconds of nobody new
        "hbase.master.wait.on.regionservers.mintostart": region_servers,
        "hbase.master.wait.on.regionservers.maxtostart": region_servers,
        "hbase.master.wait.on.regionservers.interval": 100,
        "hbase.regionserver.msginterval": 300,
        # by default an idle source looks for new edits every few seconds
        "replication.source.sleepforretries": 100,
        "replication.source.maxretriesmultiplier": 10,
        "replication.sleep.before.failover": 100,
    }


def site_xml(settings: Mapping[str, object]) -> str:
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'


def hbase_missing(host: str, port: int) -> str | None:
    """Return None when the master names its tables: before it is initialised it refuses to.

    Spoken on the socket: the call has no parameters, and an answer without an exception has nothing but the
    number of the call in its header.
    """
    connection_header = _field(1, _field(1, b"probe")) + _field(2, b"MasterService")
    request_header = b"\x08\x00" + _field(3, b"GetTableNames") + b"\x20\x01"  # call 0, with a parameter
    call = _delimited(request_header) + _delimited(b"")
    try:
        request = b"HBas\x00\x50" + _sized(connection_header) + _sized(call)
        answer = exchange((host, port), request, 7)  # size, then the header: its length, the call's number
    except OSError as error:
        return f"master on {host}:{port}: {error}"
    return None if answer[4:7] == b"\x02\x08\x00" else f"master on {host}:{port} is not initialised yet"


def _field(number: int, data: bytes) -> bytes:
    """Return a field of bytes of a protobuf message, shorter than 128."""
    return bytes([number << 3 | 2]) + _delimited(data)


def _delimited(message: bytes) -> bytes:
    return bytes([len(message)]) + message


def _sized(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message
