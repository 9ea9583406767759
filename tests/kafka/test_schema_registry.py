"""The client of schema registries: what is an answer, what is none, and with whose password it asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.base.settings import Settings
from rtolap.kafka.schema_registry import Reference, SchemaRegistries, SchemaSource

from tests.support.certificates import make_certificates
from tests.support.cubes.services import wait_for
from tests.support.formats.registry_server import RegistryServer, running_registry

SCHEMA = '{"type":"record","name":"E","fields":[]}'


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with running_registry() as registry:
        registry.schemas[7] = {"schema": SCHEMA}
        yield registry


def client(url: str) -> SchemaSource:
    return SchemaRegistries.of_host(Settings(schema_registry=url)).get("default")


def declared(folder: Path, text: str, **secrets: str) -> SchemaRegistries:
    for name, secret in secrets.items():
        (folder / name).write_text(secret + "\n")
        (folder / name).chmod(0o600)
    file = folder / "registries.yaml"
    file.write_text(text.replace("FOLDER", str(folder)))
    file.chmod(0o600)
    return SchemaRegistries.of_host(Settings(schema_registries=file))


def test_a_schema_is_fetched_once(server: RegistryServer) -> None:
    source = client(server.url + "/")
    assert source.schema(7).text == SCHEMA
    assert source.schema(7).kind == "AVRO"
    assert server.asked == ["/schemas/ids/7"]


def test_an_id_that_the_registry_does_not_have_is_an_answer_and_is_not_asked_for_at_once_again(
    server: RegistryServer,
) -> None:
    source = client(server.url)
    for _ in range(2):
        with pytest.raises(NotFound, match="has no schema 8"):
            source.schema(8)
    assert server.asked == ["/schemas/ids/8"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"oops"),
        (503, b""),
        (404, b"<html>Not Found</html>"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (401, b'{"error_code": 40101, "message": "Unauthorized"}'),
        (403, b""),
        (302, b""),
        (200, b"<html>A page of a proxy</html>"),
        (200, b"{}"),
        (200, b"\xff"),
    ],
)
def test_an_answer_that_is_none_says_nothing_about_the_record(
    server: RegistryServer, status: int, body: bytes
) -> None:
    source = client(server.url)
    server.broken = (status, body)
    with pytest.raises(Unavailable, match=server.url):
        source.schema(7)
    with pytest.raises(Unavailable, match=server.url):
        source.schema(7)
    assert server.asked == ["/schemas/ids/7"], "it is not asked for at once again"
    server.broken = None
    wait_for("the registry is asked again", lambda: is_known(source))


def is_known(source: SchemaSource) -> bool:
    try:
        return source.schema(7).text == SCHEMA
    except Unavailable:
        return False


def test_a_registry_that_is_away_is_named_and_the_next_server_is_asked(server: RegistryServer) -> None:
    with running_registry() as gone:
        away = gone.url
    with pytest.raises(Unavailable, match=f"schema registry default .*{away}"):
        client(away).schema(7)
    assert client(f"{away}, {server.url}").schema(7).text == SCHEMA


def test_references_are_fetched_by_subject_and_version(server: RegistryServer) -> None:
    server.subjects["a/b c", 3] = {"subject": "a/b c", "version": 3, "id": 9, "schema": SCHEMA}
    source = client(server.url)
    assert source.referenced(Reference("x", "a/b c", 3)).text == SCHEMA
    with pytest.raises(NotFound, match="version 4 of subject a/b c"):
        source.referenced(Reference("x", "a/b c", 4))


def test_of_a_protobuf_schema_the_descriptor_is_fetched(server: RegistryServer) -> None:
    server.schemas[5] = {"schemaType": "PROTOBUF", "schema": "syntax = ...", "serialized": "AAAA"}
    found = client(server.url).schema(5)
    assert (found.kind, found.text) == ("PROTOBUF", "AAAA")


def test_it_logs_in_with_a_password_or_a_token_out_of_files_over_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with running_registry(certificates) as registry:
        registry.schemas[7] = {"schema": SCHEMA}
        registry.user = ("rtolap", "s3cret")
        registries = declared(
            tmp_path,
            f"registries:\n  default: {{urls: [{registry.url}], user: rtolap, "
            f"password: {{file: FOLDER/password}}, ca_file: {certificates.authority}}}\n"
            f"  other: {{urls: [{registry.url}], token: {{file: FOLDER/token}}, "
            f"ca_file: {certificates.authority}}}\n",
            password="s3cret",
            token="t0ken",
        )
        assert registries.get("default").schema(7).text == SCHEMA
        with pytest.raises(Unavailable, match="401"):
            registries.get("other").schema(7)
        registry.user, registry.token = None, "t0ken"
        wait_for("the token is taken", lambda: is_known(registries.get("other")))
        assert "s3cret" not in repr(registries)
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            client(registry.url).schema(7)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("registries: []", "declares no registries"),
        ("registries: {a: {}}", "has no address"),
        ("registries: {a: {urls: ['ftp://x']}}", r"expected http\(s\)://host:port; found 'ftp://x'"),
        ("registries: {a: {urls: ['http://u:p@x']}}", "has no address"),
        (
            "registries: {a: {urls: ['http://x'], pasword: x}}",
            "is not declared; expected a mapping with keys",
        ),
        ("registries: {a: {urls: ['http://x'], user: x}}", "cannot log in; expected user and password"),
        ("registries: {a: {urls: ['http://x'], user: x, password: plain}}", "a file of its own"),
    ],
)
def test_a_file_of_registries_is_checked(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        declared(tmp_path, text)


def test_a_registry_that_the_host_does_not_know_is_named_with_those_that_it_does(tmp_path: Path) -> None:
    registries = declared(tmp_path, "registries: {here: {urls: ['http://x']}}")
    with pytest.raises(DefinitionError, match="no schema registry heer; expected here; did you mean 'here'"):
        registries.get("heer")
