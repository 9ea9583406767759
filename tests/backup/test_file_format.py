from __future__ import annotations

import random
import stat
from pathlib import Path

import msgspec
import pytest
from rtolap.backup.file_format import Header, cluster_key, decode, encode, read_backup, write_backup
from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError

CLUSTER, TOKEN = "/rtolap", "the token of this cluster"
RECORDS = {"/cubes/c/control": b'{"enabled":true}', "/fleet/id-x/moves/0000": bytes(range(256))}
HEADER = Header(
    backup_id="b1",
    cluster=CLUSTER,
    cluster_key=cluster_key(TOKEN),
    made_ms=1_700_000_000_000,
    program="1.2",
    passes=2,
    records=len(RECORDS),
)


def written(header: Header = HEADER, token: str = TOKEN) -> bytes:
    return encode(header, RECORDS, token)


def read(data: bytes, cluster: str = CLUSTER, token: str = TOKEN) -> dict[str, bytes]:
    return decode(data, "b.rtolap-backup", cluster=cluster, token=token).records


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.rtolap-backup"
    write_backup(path, written())
    found = read_backup(path, cluster=CLUSTER, token=TOKEN)
    assert found.records == RECORDS
    assert (found.header.made_ms, found.header.records) == (HEADER.made_ms, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [path], "nothing is left beside it"
    assert TOKEN.encode() not in path.read_bytes()
    with pytest.raises(NotFound):
        read_backup(tmp_path / "other", cluster=CLUSTER, token=TOKEN)
    with pytest.raises(RtolapError, match="cannot be written"):
        write_backup(tmp_path / "no folder" / "b", written())


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_backup_is_refused_wherever_the_damage_is(seed: int) -> None:
    drawn, data = random.Random(seed), bytearray(written())
    match drawn.randrange(3):
        case 0:
            data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        case 1:
            del data[drawn.randrange(len(data)) :]
        case _:
            at = drawn.randrange(len(data))
            data[at:at] = drawn.randbytes(drawn.randrange(1, 20))
    with pytest.raises((Corrupted, Refused)):
        read(bytes(data))


def test_a_backup_of_another_cluster_is_refused() -> None:
    for cluster, token in (("/other", TOKEN), (CLUSTER, "another token")):
        with pytest.raises(Refused, match="a backup of another cluster"):
            read(written(), cluster, token)


def test_who_has_no_token_writes_no_backup() -> None:
    with pytest.raises(Corrupted, match="its header was altered"):
        read(written(token="guessed"))


def test_another_format_is_refused_before_anything_else_is_believed() -> None:
    for field, value in (("format_version", 2), ("format", "something")):
        header = msgspec.structs.replace(HEADER, **{field: value})
        with pytest.raises(Refused, match=r"another format version|no backup of metadata"):
            read(written(header, "any token"))
