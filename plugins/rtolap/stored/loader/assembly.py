"""The parts of a loader's process, as its definition and this host's settings name them."""

from __future__ import annotations

from pathlib import Path

from rtolap.base.errors import DefinitionError
from rtolap.base.files import read_password
from rtolap.base.settings import Settings
from rtolap.events.rejects import TOPIC_CONFIG
from rtolap.kafka.connections import KafkaConnections
from rtolap.kafka.rights import Need
from rtolap.model.loader import Loader, LoaderSink, SinkPartitions
from rtolap.protocols.stored_tables.mysql_partitions import MysqlPartitions
from rtolap.protocols.stream_load.client import StreamLoadClient
from rtolap.protocols.stream_load.starrocks import StarRocksClient
from rtolap.stored.loader.records.rejects import FileBox, RejectBox, TopicBox, reject_topic


def sink_of(loader: Loader, settings: Settings) -> StreamLoadClient:
    """Return a client of the endpoints that the loader names, else of this cluster's, with the CA that they
    are trusted by.
    """
    sink = loader.sink
    password = _password(sink.password_file)
    urls, ca_file = sink.urls or settings.stream_load_urls(), None if sink.urls else settings.stream_load_ca
    if sink.ca_file is not None:
        ca_file = Path(sink.ca_file)
    client = StarRocksClient if sink.target == "starrocks" else StreamLoadClient
    return client(urls, sink.user, password, ca_file=ca_file, plain_backends=sink.backends.plain)


def partition_endpoint(sink: LoaderSink, wanted: SinkPartitions) -> MysqlPartitions:
    """Return the endpoint for partitions. Each connection reads its password. Raises DefinitionError for a
    wrong address."""
    password_file = wanted.password_file or sink.password_file
    ca_file = None if wanted.ca_file is None else Path(wanted.ca_file)
    host_port = wanted.host_port
    if host_port is None:
        raise DefinitionError(
            "not the address of a MySQL endpoint", expected="host:port", found=repr(wanted.sql)
        )
    user = wanted.user or sink.user
    return MysqlPartitions(*host_port, user, lambda: _password(password_file), ca_file=ca_file)


def _password(file: str | None) -> str:
    return "" if file is None else read_password(Path(file), "the sink")


def check_loader_rights(loader: Loader, connections: KafkaConnections) -> None:
    """Check, before anything is read, that the loader may read the topic and store refused records.

    Raises Forbidden, which names what is missing, Unauthorized and DefinitionError.
    """
    needs = [Need(loader.topic, "Read")]
    if loader.rejects.to == "topic":
        needs.append(Need(reject_topic(loader.topic, loader.name), "Write", creates=True))
    connections.check_rights(loader.kafka_cluster, needs)


def reject_file(loader: Loader, settings: Settings) -> Path:
    """Return the file on its host in which a loader keeps what it refuses, where it keeps it in one."""
    return settings.data_dir / "loaders" / f"{loader.name}.rejects.jsonl"


def reject_box(loader: Loader, settings: Settings, connections: KafkaConnections) -> RejectBox:
    if loader.rejects.to == "file":
        return FileBox(reject_file(loader, settings))
    topic = reject_topic(loader.topic, loader.name)

    def create() -> None:
        connections.admin(loader.kafka_cluster).create_topic(topic, 1, config=TOPIC_CONFIG)

    return TopicBox(connections.producer(loader.kafka_cluster), topic, create)
