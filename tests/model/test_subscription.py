"""Definitions of subscriptions: read from YAML, and refused with the place of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.subscription import (
    CellColumn,
    HBaseSource,
    RowColumn,
    Subscription,
    SubscriptionListener,
    SubscriptionPoison,
)
from rtolap.model.yaml_files import read_definitions

FULL = """
kind: subscription
name: orders
source: {zookeeper: "zk1:2181,zk2:2181", parent: /hbase}
tables:
  orders: [cf, meta]
  shop:returns: []
start: "2026-01-31T10:00Z"
serial: true
ratio: 0.5
ports: 4
consumers: 3
row: {name: order_id, type: long}
columns:
  amount: {cell: "cf:amount", type: "decimal(10,2)"}
  note: {cell: "cf:note"}
deletes: ignore
meta_cells: event
row_prefixes: [eu-]
filters: [large]
payload: invoice
poison: {policy: skip, tries: 3}
listener: {kind: kafka, topic: orders_changes, cluster: other}
allowed_addresses: [10.0.0.0/8, "::1"]
"""
SHORT = """kind: subscription
name: orders
source: {zookeeper: "zk1:2181"}
tables: {orders: []}
listener: {kind: python, entry_point: mail}
"""


def read(tmp_path: Path, text: str) -> Subscription:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    return read_definitions(file).subscriptions["orders"]


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, FULL) == Subscription(
        name="orders",
        source=HBaseSource("zk1:2181,zk2:2181", "/hbase"),
        tables={"orders": ("cf", "meta"), "shop:returns": ()},
        start="2026-01-31T10:00Z",
        serial=True,
        ratio=0.5,
        ports=4,
        consumers=3,
        row=RowColumn("order_id", "long"),
        columns={"amount": CellColumn("cf:amount", "decimal(10,2)"), "note": CellColumn("cf:note")},
        deletes="ignore",
        meta_cells="event",
        row_prefixes=("eu-",),
        filters=("large",),
        payload="invoice",
        poison=SubscriptionPoison("skip", 3),
        listener=SubscriptionListener("kafka", topic="orders_changes", cluster="other"),
        allowed_addresses=("10.0.0.0/8", "::1"),
    )


def test_most_keys_may_be_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, SHORT).start == "now"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("name: orders", "name: my-orders", "2: name: "),
        ('"zk1:2181"', "zk1", "3: source.zookeeper: not an address"),
        ('"zk1:2181"', '"zk1:2181", parent: /hbase/', "3: source.parent: not HBase's parent node"),
        ("{orders: []}", "{}", "4: tables: nothing is followed"),
        ("{orders: []}", "[orders]", "4: tables: wrong value; expected a mapping of names to values"),
        ("{orders: []}", '{orders: ["cf:q"]}', "4: tables.orders[0]: not a column family"),
        ("{orders: []}", "{orders: [], orders: [cf]}", "4: tables.orders: wrong value; expected every name"),
        ("{orders: []}", '{"a b": []}', "4: tables.a b: not a table"),
        ("{orders: []}", '{"n:t": []}\nnamespaces: [n]', "4: tables.n:t: followed twice"),
        ("{orders: []}", "{orders: []}\nexclude_namespaces: [n]", "4: tables: followed and excluded"),
        ("kind: python, entry_point: mail", "kind: kafka", "5: listener.topic: a key is missing"),
        ("entry_point: mail", "entry_point: mail, topic: t", "5: listener.topic: not for a python listener"),
        ("entry_point: mail", "entry_point: mail, lanes: 0", "5: listener.lanes: out of bounds"),
        ("tables:", "start: soon\ntables:", "4: start: not a start"),
        ("tables:", "ratio: 2\ntables:", "4: ratio: out of bounds"),
        ("tables:", "ratio: all\ntables:", "4: ratio: wrong value; expected a number"),
        ("tables:", "ports: 0\ntables:", "4: ports: out of bounds"),
        ("tables:", "consumers: 0\ntables:", "4: consumers: out of bounds"),
        ("tables:", "consumers: 33\ntables:", "4: consumers: out of bounds"),
        ("tables:", "poison: {policy: skp}\ntables:", "4: poison.policy: wrong value; expected one of"),
        ("tables:", 'columns: {a: {cell: "q"}}\ntables:', "4: columns.a.cell: not a cell"),
        (
            "tables:",
            'columns: {a: {cell: "f:q", type: lng}}\ntables:',
            "columns.a.type: not a type; expected one of short, int, long, float, double, boolean, string, "
            "json, bytes, decimal(p,s); found 'lng'; did you mean 'long'?",
        ),
        ("tables:", 'columns: {row_key: {cell: "f:q"}}\ntables:', "4: columns.row_key: the row key has"),
        ("tables:", "allowed_addresses: [10.0.0.1/8]\ntables:", "4: allowed_addresses[0]: not an address"),
        ("tables:", "tabels: {}\ntables:", "4: tabels: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        read(tmp_path, SHORT.replace(old, new, 1))
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "orders.yaml"))
