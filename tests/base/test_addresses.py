"""`host:port` names what it was made of, whatever the host; what a service announces is found by others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as drawn
from rtolap.airflow.hooks.connection import from_connection
from rtolap.base.addresses import bracketed, host_port, is_unspecified, plain_host, split_host_port
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings

from tests.support.paths import PLUGINS

_NAMES = drawn.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{2,6})?", fullmatch=True)
HOSTS = drawn.ip_addresses().map(str) | _NAMES
PORTS = drawn.integers(1, 65_535)
# HBase writes its quorums itself; the local stack is on 127.0.0.1
_OTHER_FORMATS = {"base/addresses.py", "sep/hbase/peers.py"}
_ON_ONE_ADDRESS = "stack"


@given(HOSTS, PORTS)
def test_an_address_is_read_as_it_was_written(host: str, port: int) -> None:
    address = host_port(host, port)
    assert split_host_port(address) == (host, port)
    parts = urlsplit(f"http://{address}/path")
    assert (parts.hostname, parts.port) == (host, port)
    assert host_port(bracketed(host), port) == address
    assert split_host_port(bracketed(host), port) == (host, port)


@given(HOSTS)
def test_a_host_of_the_settings_may_have_the_brackets_of_urls(host: str) -> None:
    assert plain_host(bracketed(host)) == plain_host(host) == host


@pytest.mark.parametrize(
    "text", ["host:80", "http://host", "fe80::1%eth0", "a b", "[::1]:80", "::1::", "[host]:", "a/b", "u@host"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="without port and zone"):
        Settings(host=text)
    with pytest.raises(DefinitionError, match="without port and zone"):
        Settings(announced_host=text)


@pytest.mark.parametrize(
    "text", ["", ":80", "host", "host:", "host:0", "host:65536", "host:x", "::1:80", "[]:1", "[host]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_host_port(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_where_every_machine_finds_itself_is_listened_on_and_never_announced(host: str) -> None:
    assert is_unspecified(plain_host(host))
    with pytest.raises(DefinitionError, match="RTOLAP_ANNOUNCED_HOST"):
        Settings(host=host).reached_at()
    with pytest.raises(DefinitionError, match="RTOLAP_ANNOUNCED_HOST"):
        Settings(announced_host=host).reached_at()
    assert Settings(host=host, announced_host="10.0.0.7").reached_at() == "10.0.0.7"


@given(drawn.sampled_from(("0.0.0.0", "::", "")) | HOSTS, _NAMES, _NAMES)
def test_services_of_two_machines_are_not_named_alike(announced: str, one: str, other: str) -> None:
    """In the query log and in lineage, also where they listen at all addresses and announce none."""
    machines = (one, other)
    for host in ("0.0.0.0", "::"):
        settings = [Settings(host=host, announced_host=announced, machine=machine) for machine in machines]
        is_announced = bool(announced) and not is_unspecified(announced)
        names = (announced, announced) if is_announced else machines
        assert tuple(each.named_at() for each in settings) == names
    assert Settings(host=one, machine=other).named_at() == one


@given(drawn.sampled_from(("0.0.0.0", "::")) | HOSTS, drawn.sampled_from(("0.0.0.0", "::", "")) | HOSTS)
def test_clients_call_no_address_that_is_there_to_listen_at(host: str, announced: str) -> None:
    """A certificate is for a name, and the error of a call says where that went."""
    settings = Settings(host=host, announced_host=announced)
    if not is_unspecified(host):
        called = host
    elif announced and not is_unspecified(announced):
        called = announced
    else:
        called = {"0.0.0.0": "127.0.0.1", "::": "::1"}[host]
    found = {urlsplit(url).hostname for url in _urls_of(settings)}
    connected = from_connection(_NamesNothing(), settings)
    found |= {urlsplit(url).hostname for url in (*connected.coordinator_urls, connected.agent_url)}
    found |= {urlsplit(url).hostname for url in (*connected.stream_load_urls, connected.query_url)}
    assert found == {called}


def _urls_of(settings: Settings) -> tuple[str, ...]:
    own = (settings.agent_url(), settings.query_url())
    return (*own, *settings.coordinator_urls(), *settings.stream_load_urls())


class _NamesNothing:
    """A connection of Airflow's that says nothing but the token."""

    host, port, password, extra_dejson = None, None, "secret", dict[str, str]()


def test_no_url_is_made_of_the_address_to_listen_at() -> None:
    urls = [
        f"{file.relative_to(PLUGINS).as_posix()}:{node.lineno}"
        for file in sorted((PLUGINS / "rtolap").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.JoinedStr) and "://" in ast.unparse(node)
        if "settings.host" in ast.unparse(node) or "self.host," in ast.unparse(node)
    ]
    assert urls == []


def test_only_the_settings_choose_between_the_two_hosts() -> None:
    readers = [
        file.relative_to(PLUGINS).as_posix()
        for file in sorted((PLUGINS / "rtolap").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "announced_host"
        if "settings" in ast.unparse(node.value).lower()
    ]
    assert readers == []


def test_addresses_are_written_in_one_place() -> None:
    assert list(_joined(PLUGINS / "rtolap")) == []


def _joined(package: Path) -> Iterator[str]:
    """Yield where an f-string puts a port behind anything but a bracketed host."""
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if name in _OTHER_FORMATS or name.startswith(_ON_ONE_ADDRESS):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for host, colon, port in zip(parts, parts[1:], parts[2:], strict=False):
                is_address = ast.unparse(colon) == "':'" and "port" in ast.unparse(port)
                if is_address and "bracketed(" not in ast.unparse(host):
                    yield f"{name}:{node.lineno}"
