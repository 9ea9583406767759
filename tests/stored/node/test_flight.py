"""The same node through its Flight endpoint: what it says arrives as it was said, errors too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import (
    DefinitionError,
    NotFound,
    NotYet,
    QueryError,
    Refused,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import StorageClient
from rtolap.stored.node.flight import StorageFlightServer
from rtolap.stored.node.node import LocalNode
from rtolap.stored.node.process import node_metrics
from rtolap.stored.node.settings import StorageSettings

from tests.support.cubes.services import wait_for
from tests.support.stored.storage_rows import SCHEMA, read, rows, tablet

END = wire.PutEnd((wire.TabletRows(tablet(), 3),))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StorageClient]:
    settings = StorageSettings(loads_max=2)
    with LocalNode("a", tmp_path, lambda address: pytest.fail("nobody to ask"), settings) as node:
        server = StorageFlightServer(
            node, host="127.0.0.1", port=0, token="secret", metrics=node_metrics(node)
        )
        with StorageClient(f"127.0.0.1:{server.port}", "secret") as client:
            client.create(wire.CreateTablets((tablet(),), SCHEMA))
            yield client
        server.shutdown()


def test_rows_go_in_and_come_out(client: StorageClient) -> None:
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(), rows(1, 2))
    stream.write(tablet(), rows(3))
    assert stream.finish(END).prepared == (tablet(),)
    assert client.prepare(wire.Prepare(7, (tablet(),))).tablets == (tablet(),)
    assert client.publish(wire.Publish(7, ((tablet(), 1),))).tablets == (tablet(),)
    assert read(client, tablet(), 1) == [(1, "x"), (2, "x"), (3, "x")]
    (report,) = client.status().tablets
    assert (report.tablet, report.version, report.rows) == (tablet(), 1, 3)


def test_texts_in_dictionaries_arrive(client: StorageClient) -> None:
    """Each batch of a stream may have another dictionary, for tablets in turns."""
    client.create(wire.CreateTablets((tablet(1),), SCHEMA))
    parts = [(tablet(at % 2), rows(*range(at * 10, at * 10 + 10), note=f"text {at // 3}")) for at in range(9)]
    coded = [
        (to, batch.set_column(1, "note", batch.column("note").dictionary_encode())) for to, batch in parts
    ]
    stream = client.put(wire.PutHead(7, SCHEMA), coded[0][1].schema)
    for to, batch in coded:
        stream.write(to, batch)
    counts = {to: sum(batch.num_rows for each, batch in parts if each == to) for to, _ in parts}
    stream.finish(wire.PutEnd(tuple(wire.TabletRows(to, count) for to, count in counts.items())))
    client.publish(wire.Publish(7, tuple((to, 1) for to in counts)))
    for to in counts:
        sent = [tuple(row.values()) for each, batch in parts if each == to for row in batch.to_pylist()]
        assert read(client, to, 1) == sorted(sent, key=repr)


def test_a_stream_of_many_megabytes_arrives(client: StorageClient) -> None:
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    for first in range(0, 10_000, 1000):
        stream.write(tablet(), rows(*range(first, first + 1000), note="x" * 4000))
    stream.finish(wire.PutEnd((wire.TabletRows(tablet(), 10_000),)))
    client.publish(wire.Publish(7, ((tablet(), 1),)))
    assert sum(batch.num_rows for batch in client.scan(wire.ScanRequest(tablet(), SCHEMA, 1))) == 10_000


@pytest.mark.parametrize(("megabytes", "kind"), [(66, DefinitionError), (82, TooLarge)])
def test_a_batch_that_is_too_large_is_refused_by_name(
    client: StorageClient, megabytes: int, kind: type[Exception]
) -> None:
    """By the node where it is a little too large, else before gRPC takes it in."""
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    large = rows(*range(megabytes), note="x" * (1 << 20))

    def send() -> None:
        stream.write(tablet(), large)
        stream.finish(wire.PutEnd((wire.TabletRows(tablet(), megabytes),)))

    with pytest.raises(kind, match="too large"):
        send()
    wait_for("the load to be given up", lambda: client.status().loading == ())


def test_errors_keep_their_names(client: StorageClient) -> None:
    with pytest.raises(NotYet):
        client.scan(wire.ScanRequest(tablet(), SCHEMA, 1))
    with pytest.raises(NotFound):
        client.scan(wire.ScanRequest(tablet(9), SCHEMA, 0))
    with pytest.raises(NotFound):
        client.copy(wire.CopyRequest(tablet(9), 0))
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(), rows(1))
    with pytest.raises(Refused, match="rows are missing"):
        stream.finish(END)
    with pytest.raises(NotFound):
        endless(client.put(wire.PutHead(8, SCHEMA), rows().schema), tablet(9))
    with pytest.raises(QueryError, match="unknown action"):
        client._act("explode", wire.AskStatus(), wire.Done)
    assert client.status().loading == ()


def endless(stream: object, to: wire.TabletId) -> None:
    """The refusal comes while more is being sent."""
    for _ in range(10_000):
        stream.write(to, rows(*range(1000)))  # type: ignore[attr-defined]
    pytest.fail("nobody refused it")


def test_a_stream_that_breaks_off_leaves_nothing(client: StorageClient) -> None:
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(), rows(1, 2, 3))
    stream.cancel()
    with pytest.raises((Unavailable, Refused)):
        stream.finish(END)
    early = client.put(wire.PutHead(8, SCHEMA), rows().schema)
    early.write(tablet(), rows(1))
    with pytest.raises(pa.ArrowException, match="ended early"):
        early._writer.close()
    assert client.prepare(wire.Prepare(7, (tablet(),))).tablets == ()
    assert client.prepare(wire.Prepare(8, (tablet(),))).tablets == ()
    assert client.status().loading == ()


def test_one_stream_too_many_is_told_to_come_back(client: StorageClient) -> None:
    streams = [client.put(wire.PutHead(txn, SCHEMA), rows().schema) for txn in (1, 2)]
    for stream in streams:
        stream.write(tablet(), rows(1))
    wait_for("both streams at the node", lambda: client.status().loading == (1, 2))
    with pytest.raises(Unavailable, match="too many loads"):
        client.put(wire.PutHead(3, SCHEMA), rows().schema).finish(END)
    for stream in streams:
        stream.cancel()


def test_nothing_goes_without_the_token(client: StorageClient) -> None:
    with StorageClient(client.address, "guess") as stranger:
        with pytest.raises(Unauthorized):
            stranger.status()
        with pytest.raises(Unauthorized):
            stranger.scan(wire.ScanRequest(tablet(), SCHEMA, 0))
        with pytest.raises(Unauthorized):
            stranger.put(wire.PutHead(7, SCHEMA), rows().schema).finish(END)


def test_a_node_that_is_not_there_is_unavailable() -> None:
    with StorageClient("127.0.0.1:1", "secret") as nobody, pytest.raises(Unavailable):
        nobody.status()


def test_an_error_in_the_middle_of_an_answer_is_named(client: StorageClient, tmp_path: Path) -> None:
    stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
    stream.write(tablet(), rows(1, 2, 3))
    stream.finish(END)
    client.publish(wire.Publish(7, ((tablet(), 1),)))
    next(tmp_path.rglob("v1/*.rows")).unlink()
    with pytest.raises(Exception, match="is gone") as caught:
        pa.Table.from_batches(list(client.copy(wire.CopyRequest(tablet(), 0))))
    assert type(caught.value).__module__ == "rtolap.base.errors"
