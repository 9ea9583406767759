"""Publications as they are declared in YAML: read strictly, every problem with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.publication import Publication
from rtolap.model.validation.files import file_problems
from rtolap.model.validation.publication import published_cuboid
from rtolap.model.yaml_files import read_definitions

from tests.support.cubes.staging import CUBE

SOUND = """
kind: publication
name: lake
cube: sales_cube
table: olap.sales
catalog:
  kind: postgres
  address: db.example.org:5432/lake
  user: publisher
  password_file: /etc/rtolap/lake
  warehouse: s3://lake/metadata?region=eu-west-1
batch: {every: 5m, versions_max: 50}
snapshots: {expire_after: 2h}
"""


def read(tmp_path: Path, text: str) -> Publication:
    file = tmp_path / "lake.yaml"
    file.write_text(text)
    return read_definitions(file).publications["lake"]


def test_a_publication_is_read_with_its_durations(tmp_path: Path) -> None:
    publication = read(tmp_path, SOUND)
    assert publication.identifier == ("olap", "sales")
    assert (publication.batch.every_ms, publication.batch.versions_max) == (300_000, 50)
    assert (publication.snapshots.expire_after_ms, publication.snapshots.count_max) == (7_200_000, 100)
    assert publication.catalog.tls == "verify", "encrypted unless somebody says otherwise"


@pytest.mark.parametrize(
    ("sound", "wrong", "named"),
    [
        ("table: olap.sales", "table: sales", "table: not a table"),
        ("table: olap.sales", "table: olap.sa;les", "table: not a table"),
        ("address: db.example.org:5432/lake", "address: db.example.org", "catalog.address: not an address"),
        ("  user: publisher\n", "", "catalog.user: a database needs a user"),
        ("s3://lake/metadata?region=eu-west-1", "s3://key:secret@lake/x", "catalog.warehouse: not a folder"),
        ("s3://lake/metadata?region=eu-west-1", "hdfs://name/x", "catalog.warehouse: not a folder"),
        ("kind: postgres", "kind: sqlite", "catalog.address: not a file"),
        ("kind: postgres", "kind: mysql", "catalog.kind"),
        ("password_file: /etc/rtolap/lake", "password: secret", "catalog.password: unknown key"),
        ("user: publisher", "user: p\n  cert_file: /c", "catalog.key_file: a client's certificate"),
        ("user: publisher", "user: p\n  key_file: /k", "catalog.cert_file: a client's certificate"),
        ("user: publisher", "user: p\n  tls: verify_ca", "catalog.ca_file: `verify_ca` needs"),
        ("user: publisher", "user: p\n  tls: none\n  ca_file: /c", "catalog.ca_file: nothing is encrypted"),
        ("user: publisher", "user: p\n  tls: allow", "catalog.tls"),
        ("versions_max: 50", "versions_max: 0", "batch.versions_max: out of bounds"),
        ("expire_after: 2h", "expire_after: 60d", "snapshots.expire_after: out of bounds"),
        ("name: lake", "name: Lake-1", "name:"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, sound: str, wrong: str, named: str) -> None:
    assert sound in SOUND
    with pytest.raises(DefinitionError) as raised:
        read(tmp_path, SOUND.replace(sound, wrong, 1))
    assert f"{tmp_path / 'lake.yaml'}:" in str(raised.value)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("  password_file: /x\n", "a client's secret needs the client's id"),
        ("  user: u\n  password_file: /x\n  token_file: /y\n", "a token is for a REST server"),
    ],
)
def test_credentials_of_a_rest_server_fit_together(tmp_path: Path, more: str, named: str) -> None:
    text = "kind: publication\nname: lake\ncube: c\ntable: a.b\ncatalog:\n  kind: rest\n"
    assert read(tmp_path, f"{text}  address: https://catalog.example.org\n").catalog.kind == "rest"
    with pytest.raises(DefinitionError, match=named):
        read(tmp_path, f"{text}  address: https://catalog.example.org\n{more}")
    with pytest.raises(DefinitionError, match="not an address"):
        read(tmp_path, f"{text}  address: https://user:secret@catalog.example.org\n")


def test_a_cuboid_has_to_be_one_of_the_cube(tmp_path: Path) -> None:
    publication = read(tmp_path, SOUND.replace("cube: sales_cube", "cube: sales_cube\ncuboid: [day, shop]"))
    assert published_cuboid(publication, CUBE).dimensions == ("shop", "day"), "as the cube orders them"
    wrong = read(tmp_path, SOUND.replace("cube: sales_cube", "cube: sales_cube\ncuboid: [day, buyer]"))
    with pytest.raises(DefinitionError, match="has no such cuboid"):
        published_cuboid(wrong, CUBE)


def test_secrets_that_others_may_read_are_named_before_they_are_used(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    publication = read(tmp_path, SOUND.replace("/etc/rtolap/lake", str(secret)))
    [problem] = file_problems(publication)
    assert problem.key == ("catalog", "password_file")
