"""The users file: who is in it, and who may do what."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, Forbidden, Unauthorized
from rtolap.base.users import Right, Users, basic_credentials, password_hash

LINES = """
# comments and empty lines are passed over
asks:{hash}
loads:{hash}:load
defines:{hash}:define
both:{hash}:load, define
"""


@pytest.fixture
def users(tmp_path: Path) -> Users:
    file = tmp_path / "users"
    file.write_text(LINES.format(hash=password_hash("secret")))
    return Users.load(file)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("asks", ()),
        ("loads", ("load",)),
        ("defines", ("load", "define")),
        ("both", ("load", "define")),
        ("nobody", ()),
    ],
)
@pytest.mark.parametrize("right", ["load", "define"])
def test_a_right_is_had_by_who_was_given_it(
    users: Users, name: str, may: tuple[str, ...], right: Right
) -> None:
    if right in may:
        users.require(name, right)
        return
    with pytest.raises(Forbidden, match=f"user {name} has not the right to {right}"):
        users.require(name, right)


def test_everybody_in_the_file_may_ask_with_the_right_password(users: Users) -> None:
    for name in ("asks", "loads", "defines", "both"):
        users.verify_password(name, "secret")
    for name, password in (("asks", "wrong"), ("nobody", "secret"), ("asks", "")):
        with pytest.raises(Unauthorized):
            users.verify_password(name, password)


@pytest.mark.parametrize("line", ["a:12", "a", f":{password_hash('x')}", f"a:{password_hash('x')}:delete"])
def test_a_broken_line_is_named_by_its_number_only(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"# users\n{line}\n")
    with pytest.raises(DefinitionError, match=r"users:2: not a user") as caught:
        Users.load(file)
    assert password_hash("x") not in str(caught.value)


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"guest:{password_hash('')}\n")
    with pytest.raises(DefinitionError, match=r"users:1: an empty password"):
        Users.load(file)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_letters_beyond_ascii_are_read_as_clients_write_them(encoding: str) -> None:
    header = base64.b64encode("Jürgen:schön:é".encode(encoding)).decode()
    assert basic_credentials(header) == ("Jürgen", "schön:é")


@pytest.mark.parametrize("header", ["no base64", "a", "ü", "YTpi\n"])
def test_what_is_no_basic_authorization_is_refused(header: str) -> None:
    with pytest.raises(Unauthorized, match="no valid Basic authorization"):
        basic_credentials(header)
