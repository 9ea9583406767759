"""Files of lookups: which are read, whatever a definition names, and what errors say about them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted, QueryError, RtolapError
from rtolap.model.table import Column, Lookup
from rtolap.query.lookups import Lookups

from tests.support.seeds import so_many

SECRET = "a-secret-in-a-file"
COLUMNS = (Column("name", "string"), Column("number", "int"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An include folder with a lookup in it, beside files that are none."""
    include = tmp_path / "include"
    (include / "lookups" / ".hidden").mkdir(parents=True)
    for path in (
        tmp_path / "secret.csv",
        tmp_path / "secret",
        include / ".env",
        include / ".env.csv",
        include / "lookups" / ".hidden" / "x.csv",
    ):
        path.write_text(f"name,number\n{SECRET},1\n")
    (include / "lookups" / "good.csv").write_text("name,number\none,1\n")
    return include


def lookup(file: str) -> Lookup:
    return Lookup(name="l", file=file, columns=COLUMNS)


def refusal(folder: Path, file: str) -> str:
    with pytest.raises(RtolapError) as caught:
        Lookups(folder).read(lookup(file))
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_a_file_below_the_folder_is_read(folder: Path) -> None:
    assert Lookups(folder).read(lookup("lookups/good.csv")).to_pylist() == [{"name": "one", "number": 1}]


def test_a_link_that_stays_below_the_folder_is_followed(folder: Path) -> None:
    (folder / "linked.csv").symlink_to(folder / "lookups" / "good.csv")
    assert Lookups(folder).read(lookup("linked.csv")).num_rows == 1


@pytest.mark.parametrize(
    "file",
    [
        *(
            "../secret.csv",
            "lookups/../../secret.csv",
            ".env",
            ".env.csv",
            "lookups/.hidden/x.csv",
            "../secret",
        ),
        *("/etc/passwd", "lookups/./good.csv", "~/x.csv", "lookups//good.csv", "", ".", "..", "lookups"),
    ],
)
def test_a_file_elsewhere_is_not_read_whoever_declared_it(folder: Path, file: str) -> None:
    refusal(folder, file)


def test_an_absolute_path_is_not_read(folder: Path) -> None:
    refusal(folder, str(folder.parent / "secret.csv"))
    refusal(folder, str(folder / "lookups" / "good.csv"))


def test_a_link_that_leads_elsewhere_is_not_read(folder: Path) -> None:
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    assert "symbolic link" in refusal(folder, "link.csv")
    (folder / "folder").symlink_to(folder.parent)
    assert "symbolic link" in refusal(folder, "folder/secret.csv")


def test_a_file_that_becomes_a_link_is_read_no_more(folder: Path) -> None:
    lookups = Lookups(folder)
    path = folder / "lookups" / "good.csv"
    assert lookups.read(lookup("lookups/good.csv")).num_rows == 1
    path.unlink()
    path.symlink_to(folder.parent / "secret.csv")
    with pytest.raises(QueryError, match="symbolic link"):
        lookups.read(lookup("lookups/good.csv"))


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.csv")
    assert "regular file" in refusal(folder, "pipe.csv")


@pytest.mark.parametrize(
    "text",
    [
        f"name,number\nx,{SECRET}\n",
        f"name,number\nx,{SECRET},{SECRET}\n",
        f"{SECRET},other\n1,2\n",
        f"name\n{SECRET}\n",
        f'name,number\n"{SECRET},1\n',
        f"{SECRET}",
        "",
    ],
)
def test_no_error_repeats_what_is_in_a_file(folder: Path, text: str) -> None:
    (folder / "lookups" / "good.csv").write_text(text)
    with pytest.raises(Corrupted) as caught:
        Lookups(folder).read(lookup("lookups/good.csv"))
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in str(shown)
        shown = shown.__cause__
    assert caught.value.__suppress_context__, "a log with the context would hold Arrow's words"


def test_a_parquet_file_that_is_none_is_named_and_not_shown(folder: Path) -> None:
    (folder / "lookups" / "bad.parquet").write_text(SECRET)
    assert "does not fit" in refusal(folder, "lookups/bad.parquet")


@pytest.mark.parametrize("seed", range(so_many(30)))
def test_no_name_reads_anything_but_the_lookups(folder: Path, seed: int) -> None:
    random_ = random.Random(seed)
    pieces = [
        "..",
        ".",
        "lookups",
        "good.csv",
        "secret.csv",
        ".env.csv",
        ".hidden",
        "x.csv",
        "",
        "~",
        "\\",
        "\0",
    ]
    for _ in range(200):
        parts = random_.choices(pieces, k=random_.randrange(1, 6))
        file = random_.choice(["", "/", str(folder) + "/", "./"]) + "/".join(parts)
        said = _read(folder, file)
        assert SECRET not in said
        assert "'one'" not in said or (folder / file).resolve() == folder / "lookups" / "good.csv"


def _read(folder: Path, file: str) -> str:
    """Return all that comes of reading it."""
    try:
        return str(Lookups(folder).read(lookup(file)).to_pylist())
    except RtolapError as error:
        return type(error).__name__ + str(error).replace(file, "")
