"""Files of the operator: what others may write to or read is refused, and no error shows a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.base.operator_files import check_private, read_operator_yaml, read_secret


def written(path: Path, content: bytes, mode: int) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_yaml_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "clusters.yaml", b"clusters: {}", 0o664)
    with pytest.raises(DefinitionError, match=r"others may write to .*; chmod go-w "):
        read_operator_yaml(path, "the file of clusters")
    path.chmod(0o644)
    assert read_operator_yaml(path, "the file of clusters") == {"clusters": {}}


@pytest.mark.parametrize("content", [b"a: [", b"a: b: c", b"\xff\xfe\x00", b"- " * 100_000])
def test_what_is_no_yaml_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DefinitionError, match=r"sources\.yaml is no YAML"):
        read_operator_yaml(written(tmp_path / "sources.yaml", content, 0o600), "the sources")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_may_read_is_refused_and_not_shown(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "password", b"s3cret\n", mode)
    for read in (read_secret, check_private):
        with pytest.raises(DefinitionError, match=rf"the password is open to others; .*{mode:04o}") as error:
            read(path, "the password")
        assert "s3cret" not in str(error.value)
    path.chmod(0o400)
    assert read_secret(path, "the password") == "s3cret"


@pytest.mark.parametrize(("content", "why"), [(b"\n", "is empty"), (b"\xff\xff", "cannot be read")])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(DefinitionError, match=f"the token {why}"):
        read_secret(written(tmp_path / "token", content, 0o600), "the token")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    for read in (read_secret, check_private, read_operator_yaml):
        with pytest.raises(DefinitionError, match=r"the key cannot be read; .*absent"):
            read(tmp_path / "absent", "the key")
