"""The checks of a subscription's definition. Pure; every problem with the way to it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from rtolap.base.errors import DefinitionError
from rtolap.column_types import parse_type
from rtolap.model.instants import instant_ms
from rtolap.model.problems import Key, Problem, bound_problems, raise_all, unknown_name
from rtolap.model.subscription import START_NOW, HBaseSource, Subscription, SubscriptionListener
from rtolap.model.validation.definition import cluster_problems, topic_problems
from rtolap.model.validation.names import name_problems

PORTS_MAX = 64
CONSUMERS_MAX = 32
LANES_MAX = 64
TRIES_MAX = 1000
APART_AFTER_S_MAX = 7 * 86_400
_TYPES = ("short", "int", "long", "float", "double", "boolean", "string", "json", "bytes")
_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_PARENT = re.compile(r"(?:/[^/\s:]+)+")
_TABLE = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_NAMESPACE = re.compile(r"[A-Za-z0-9_]+")
_FAMILY = re.compile(r"[^:/\s.][^:/\s]*")
_CELL = re.compile(r"[^:/\s.][^:/\s]*:.*", re.DOTALL)
_WANTED = {"kafka": ("topic",), "stored_table": ("database", "table"), "python": ("entry_point",)}


def validate_subscription(subscription: Subscription) -> None:
    raise_all(f"subscription {subscription.name}", subscription_problems(subscription))


def subscription_problems(subscription: Subscription) -> tuple[Problem, ...]:
    found = [
        *name_problems(subscription.name, ("name",)),  # HBase reads "-" in a peer's name as a queue's
        *_source_problems(subscription.source),
        *_followed_problems(subscription),
        *_start_problems(subscription.start),
        *_column_problems(subscription),
        *_listener_problems(subscription.listener),
        *_address_problems(subscription.allowed_addresses),
    ]
    for key, value, least, most in (
        (("ports",), subscription.ports, 1, PORTS_MAX),
        (("consumers",), subscription.consumers, 1, CONSUMERS_MAX),
        (("poison", "tries"), subscription.poison.tries, 1, TRIES_MAX),
        (("poison", "apart_after_s"), subscription.poison.apart_after_s, 0, APART_AFTER_S_MAX),
        (("listener", "lanes"), subscription.listener.lanes, 1, LANES_MAX),
    ):
        found += bound_problems(key, value, least, most)
    if not 0 < subscription.ratio <= 1:
        found.append(
            Problem(
                ("ratio",), "out of bounds", expected="more than 0, at most 1", found=f"{subscription.ratio}"
            )
        )
    return tuple(found)


def _source_problems(source: HBaseSource) -> list[Problem]:
    found = []
    for server in source.zookeeper.split(",") if source.zookeeper else ():
        address = _SERVER.fullmatch(server.strip())
        if address is None or not 0 < int(address[1]) < 1 << 16:
            found.append(
                Problem(
                    ("source", "zookeeper"),
                    "not an address",
                    expected="host:port, separated by commas",
                    found=repr(server),
                )
            )
    if not _PARENT.fullmatch(source.parent):
        found.append(
            Problem(
                ("source", "parent"),
                "not HBase's parent node",
                expected="a path such as /hbase, without a slash at its end",
                found=repr(source.parent),
            )
        )
    return found


def _followed_problems(subscription: Subscription) -> Iterator[Problem]:
    for key in ("tables", "exclude_tables"):
        for table, families in getattr(subscription, key).items():
            yield from _unlike(_TABLE, table, (key, table), "not a table", "table or namespace:table")
            for place, family in enumerate(families):
                yield from _unlike(_FAMILY, family, (key, table, place), "not a column family", "its name")
    for key in ("namespaces", "exclude_namespaces"):
        for place, name in enumerate(getattr(subscription, key)):
            yield from _unlike(_NAMESPACE, name, (key, place), "not a namespace", "its name")
    if subscription.follows_everything:
        for key in ("tables", "namespaces"):
            if getattr(subscription, key):
                yield Problem(
                    (key,),
                    "followed and excluded at once",
                    expected="tables and namespaces, or exclusions from everything",
                )
    elif not subscription.tables and not subscription.namespaces:
        yield Problem(("tables",), "nothing is followed", expected="tables, namespaces or exclusions")
    for table in subscription.tables:
        if table.rpartition(":")[0] in subscription.namespaces:
            yield Problem(
                ("tables", table),
                "followed twice",
                expected="the table or its namespace: HBase refuses both",
            )


def _start_problems(start: str) -> list[Problem]:
    if start == START_NOW:
        return []
    try:
        instant_ms(start)
    except DefinitionError:
        expected = f"{START_NOW}, or an instant such as 2026-01-31T10:00Z"
        return [Problem(("start",), "not a start", expected=expected, found=repr(start))]
    return []


def _column_problems(subscription: Subscription) -> list[Problem]:
    row = subscription.row
    found = [*name_problems(row.name, ("row", "name")), *_type_problems(row.type, ("row", "type"))]
    for name, column in subscription.columns.items():
        key = ("columns", name)
        found += name_problems(name, key)
        found += _unlike(_CELL, column.cell, (*key, "cell"), "not a cell", "family:qualifier")
        found += _type_problems(column.type, (*key, "type"))
        if name == row.name:
            found.append(Problem(key, "the row key has this name", found=repr(name)))
    return found


def _type_problems(value_type: str, key: Key) -> list[Problem]:
    if value_type in _TYPES:
        return []
    if _DECIMAL.fullmatch(value_type):
        try:
            parse_type(value_type)
        except DefinitionError as error:
            return [Problem(key, "not a type", expected=str(error.expected), found=repr(value_type))]
        return []
    expected = f"one of {', '.join(_TYPES)}, decimal(p,s)"
    return [unknown_name(key, "not a type", value_type, _TYPES, expected)]


def _listener_problems(listener: SubscriptionListener) -> Iterator[Problem]:
    for kind, keys in _WANTED.items():
        for key in keys:
            value = getattr(listener, key)
            at = ("listener", key)
            if kind == listener.kind and not value:
                yield Problem(at, "a key is missing", expected=f"{key} of a {kind} listener")
            elif kind != listener.kind and value is not None:
                yield Problem(at, f"not for a {listener.kind} listener", found=repr(value))
    if listener.kind == "kafka" and listener.topic:
        yield from [
            Problem(("listener", *problem.key), problem.message, problem.expected, problem.found)
            for problem in topic_problems(listener.topic)
        ]
    if listener.kind == "stored_table":
        for key in ("database", "table"):
            if value := getattr(listener, key):
                yield from name_problems(value, ("listener", key))
    yield from [
        Problem(("listener", "cluster"), problem.message, problem.expected, problem.found)
        for problem in cluster_problems(listener.cluster)
    ]


def _address_problems(addresses: tuple[str, ...]) -> list[Problem]:
    found = []
    for place, address in enumerate(addresses):
        try:
            ipaddress.ip_network(address)
        except ValueError as error:
            expected = "an IP address, or a network such as 10.0.0.0/8"
            found.append(
                Problem(("allowed_addresses", place), f"not an address ({error})", expected=expected)
            )
    return found


def _unlike(pattern: re.Pattern[str], text: str, key: Key, message: str, expected: str) -> list[Problem]:
    if pattern.fullmatch(text):
        return []
    return [Problem(key, message, expected=expected, found=repr(text))]
