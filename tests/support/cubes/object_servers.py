"""Real object stores on this machine: an S3 server, and a NameNode with its DataNode. Loopback only.

The S3 server is S3Proxy, which checks signatures and checksums and keeps objects below a folder. Hadoop's
servers come in the jar of its mini cluster and run as the processes that they are in a cluster.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx
from rtolap.stack.artifacts import fetch_jars, find_java, pyspark_jars
from rtolap.stack.java import LEAN_FLAGS, class_path
from rtolap.stack.spec import ProcessSpec

from tests.support.waiting import patience_s

REGION = "us-east-1"
BUCKET = "rtolap"
_HOST = "127.0.0.1"
_HDFS_STATE = "Hadoop:service=NameNode,name=FSNamesystemState"

# S3Proxy reaches other clouds too, through libraries that a folder does not need. Hadoop's connector is made
# for the SDK of that version; Spark brings netty and the logging.
_IVY = """<ivy-module version="2.0"><info organisation="local" module="object-stores"/>
<configurations><conf name="s3proxy"/><conf name="s3a"/><conf name="hdfs"/></configurations>
<dependencies>
<dependency org="org.gaul" name="s3proxy" rev="4.1.0" conf="s3proxy-&gt;default">
<exclude org="com.azure"/><exclude org="com.google.cloud"/><exclude org="io.grpc"/>
<exclude org="com.github.openstack4j.*" matcher="regexp"/><exclude org="org.apache.sshd"/>
<exclude org="io.opentelemetry.*" matcher="regexp"/><exclude org="io.prometheus"/>
<exclude org="org.eclipse.jetty.*" matcher="regexp"/></dependency>
<dependency org="jakarta.servlet" name="jakarta.servlet-api" rev="6.0.0" transitive="false"
 conf="s3proxy-&gt;default"/>
<dependency org="org.apache.hadoop" name="hadoop-aws" rev="3.5.0" transitive="false" conf="s3a-&gt;default"/>
<dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3" rev="1.3.1"
 transitive="false" conf="s3a-&gt;default"/>
<dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="2.35.4" conf="s3a-&gt;default">
<exclude org="io.netty"/><exclude org="org.slf4j"/></dependency>
<dependency org="software.amazon.awssdk" name="sts" rev="2.35.4" conf="s3a-&gt;default">
<exclude org="io.netty"/><exclude org="org.slf4j"/></dependency>
<dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="3.5.0" transitive="false"
 conf="hdfs-&gt;default"/>
</dependencies></ivy-module>
"""
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %logger{0}: %msg%n</pattern></encoder></appender>
<root level="warn"><appender-ref ref="out"/></root></configuration>
"""


class S3Keys(NamedTuple):
    access: str
    secret: str

    def profile(self, path: Path) -> Path:
        """Write an AWS credentials file at `path`, readable by its owner only."""
        path.touch(mode=0o600)
        path.write_text(
            f"[default]\naws_access_key_id = {self.access}\naws_secret_access_key = {self.secret}\n"
        )
        return path


def new_keys() -> S3Keys:
    return S3Keys(f"AK{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30))


def spark_s3_jars() -> tuple[Path, ...]:
    """Return the jars that Spark needs to read and write s3a."""
    return object_server_jars("s3a")


def s3_uri(port: int, prefix: str) -> str:
    return f"s3://{BUCKET}/{prefix}?endpoint_override=http://{_HOST}:{port}&region={REGION}"


def s3_spec(folder: Path, port: int, keys: S3Keys) -> ProcessSpec:
    """Return an S3 server with one bucket, BUCKET, that only `keys` open."""
    folder = folder.absolute()

    def prepare() -> None:
        (folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
        (folder / "logback.xml").write_text(_LOGBACK)
        configuration = folder / "s3proxy.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            f"s3proxy.endpoint=http://{_HOST}:{port}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={keys.access}\ns3proxy.credential={keys.secret}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={folder / 'objects'}\n"
        )

    return ProcessSpec(
        name="s3",
        folder=folder,
        address=f"{_HOST}:{port}",
        argv=(
            *(find_java(), "-Xmx192m", *LEAN_FLAGS),
            f"-Dlogback.configurationFile={folder / 'logback.xml'}",
            *("-cp", class_path(object_server_jars("s3proxy")), "org.gaul.s3proxy.Main"),
            *("--properties", str(folder / "s3proxy.conf")),
        ),
        prepare=prepare,
        ready=lambda _: _s3_missing(port),
    )


def _s3_missing(port: int) -> str | None:
    try:
        answer = httpx.get(f"http://{_HOST}:{port}/", timeout=2, trust_env=False)
    except httpx.HTTPError as error:
        return f"GET /: {error}"
    return None if answer.status_code == httpx.codes.FORBIDDEN else f"GET /: {answer.status_code}"


class HdfsPorts(NamedTuple):
    namenode: int
    namenode_http: int
    datanode: int
    datanode_http: int
    datanode_ipc: int


def namenode_spec(folder: Path, ports: HdfsPorts) -> ProcessSpec:
    """Return a NameNode, which is ready when it answers; it is writable only once a data node has come. HTTP
    is at the last port."""
    folder = folder.absolute()
    java = _hadoop_java(folder)
    name = "org.apache.hadoop.hdfs.server.namenode.NameNode"

    def prepare() -> None:
        _write_hadoop_conf(folder, ports)
        if not (folder / "name" / "current").exists():
            formatting = (*java, name, "-format", "-nonInteractive")
            subprocess.run(formatting, check=True, capture_output=True, timeout=patience_s(60))

    return ProcessSpec(
        name="namenode",
        folder=folder,
        address=f"{_HOST}:{ports.namenode}",
        ports=(ports.namenode, ports.namenode_http),
        argv=(*java, name),
        prepare=prepare,
        ready=_connects(ports.namenode),
    )


def datanode_spec(folder: Path, ports: HdfsPorts) -> ProcessSpec:
    """Return a data node, which is ready when the NameNode knows it and permits writes."""
    folder = folder.absolute()
    return ProcessSpec(
        name="datanode",
        folder=folder,
        address=f"{_HOST}:{ports.datanode}",
        argv=(*_hadoop_java(folder), "org.apache.hadoop.hdfs.server.datanode.DataNode"),
        prepare=lambda: _write_hadoop_conf(folder, ports),
        ready=lambda _: _hdfs_missing(ports),
    )


def _hdfs_missing(ports: HdfsPorts) -> str | None:
    page = f"http://{_HOST}:{ports.namenode_http}/jmx"
    try:
        answer = httpx.get(page, params={"qry": _HDFS_STATE}, timeout=2, trust_env=False)
        state = answer.raise_for_status().json()["beans"][0]
    except httpx.HTTPError as error:
        return f"GET /jmx: {error}"
    found = (state["FSState"], state["NumLiveDataNodes"])
    return None if found == ("Operational", 1) else f"state and data nodes: {found}"


def _hadoop_java(folder: Path) -> tuple[str, ...]:
    jars = [*object_server_jars("hdfs"), *sorted(pyspark_jars().glob("*.jar"))]
    path = class_path([folder / "conf", *jars])
    return (find_java(), "-Xmx192m", *LEAN_FLAGS, f"-Dhadoop.home.dir={folder}", "-cp", path)


def _write_hadoop_conf(folder: Path, ports: HdfsPorts) -> None:
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    values = {
        "dfs.namenode.rpc-address": f"{_HOST}:{ports.namenode}",
        "dfs.namenode.rpc-bind-host": _HOST,
        "dfs.namenode.http-address": f"{_HOST}:{ports.namenode_http}",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.namenode.safemode.extension": 0,
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.datanode.address": f"{_HOST}:{ports.datanode}",
        "dfs.datanode.http.address": f"{_HOST}:{ports.datanode_http}",
        "dfs.datanode.ipc.address": f"{_HOST}:{ports.datanode_ipc}",
        "dfs.datanode.hostname": _HOST,
        "dfs.replication": 1,
    }
    (conf / "hdfs-site.xml").write_text(_hadoop_xml(values))
    (conf / "core-site.xml").write_text(_hadoop_xml({"fs.defaultFS": f"hdfs://{_HOST}:{ports.namenode}"}))


def _hadoop_xml(values: dict[str, object]) -> str:
    rows = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
    return f"<configuration>{''.join(rows)}</configuration>\n"


def _connects(port: int) -> Callable[[float], str | None]:
    def missing(_: float) -> str | None:
        try:
            socket.create_connection((_HOST, port), timeout=2).close()
        except OSError as error:
            return f"port {port}: {error}"
        return None

    return missing


def object_server_jars(conf: str) -> tuple[Path, ...]:
    """Return the class path of `s3proxy`, `s3a` or `hdfs`, fetched first when the cache lacks it."""
    folder = fetch_jars(_IVY, ("s3proxy", "s3a", "hdfs"), "the object stores", None)
    return tuple(sorted((folder / conf).glob("*.jar")))
