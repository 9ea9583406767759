"""A bundle holds no secret of its host, says what it lacks, and is bounded and private."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import string
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from rtolap.base.errors import AlreadyExists, Unavailable
from rtolap.base.settings import Settings
from rtolap.cli.main import app
from rtolap.doctor.bundle.archive import MEMBER_BYTES_MAX, Archive
from rtolap.doctor.bundle.log_tails import log_tails
from rtolap.doctor.bundle.masking import (
    HIDDEN,
    OPERATOR_FILE_SETTINGS,
    SECRET_FILE_SETTING,
    Mask,
)
from rtolap.doctor.bundle.sources import Part, collect
from typer.testing import CliRunner

LETTERS = string.ascii_letters + string.digits
ODD = LETTERS + "@:/?#&%+ ='\"\\$<>{}é"


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        read = {}
        for each in archive.getmembers():
            assert each.isreg()
            file = archive.extractfile(each)
            assert file is not None
            read[each.name] = file.read().decode()
        return read


def forms(secret: str) -> set[str]:
    return {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode().rstrip("="),
    }


def drawn_secret(draw: random.Random, letters: str = ODD) -> str:
    return "".join(draw.choices(letters, k=draw.randint(10, 40))).strip().ljust(10, "x")


def secret_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


class Host:
    """A host with drawn secrets, whose services are down but for one, which repeats every secret."""

    def __init__(self, folder: Path, seed: int) -> None:
        draw = random.Random(seed)
        self.secrets: list[str] = []
        self.guessed: list[str] = []  # nobody on this host knows that they are secrets

        def new(letters: str = ODD) -> str:
            self.secrets.append(drawn_secret(draw, letters))
            return self.secrets[-1]

        def foreign() -> str:
            self.guessed.append(drawn_secret(draw, LETTERS))
            return self.guessed[-1]

        logs = folder / "data" / "agent" / "logs"
        logs.mkdir(parents=True)
        given: dict[str, Any] = {}
        for name in Settings.model_fields:
            if SECRET_FILE_SETTING.search(name):
                text = f"someone:{new(LETTERS)}:all" if name == "users_file" else new()
                given[name] = secret_file(folder, name, text)
        kafka = {
            "default": {
                "bootstrap": "127.0.0.1:1",
                "sasl.password": {"file": str(secret_file(folder, "k", new()))},
            }
        }
        registry = {
            "default": {"urls": [f"http://u:{foreign()}@127.0.0.1:1"], "user": "u", "password": new()}
        }
        sources = {"access": {"token": {"file": str(secret_file(folder, "s", new()))}}}
        for name, declared in zip(OPERATOR_FILE_SETTINGS, (kafka, registry, sources), strict=True):
            given[name] = secret_file(folder, f"{name}.yaml", yaml.safe_dump(declared))
        self.environ = {
            "AWS_SECRET_ACCESS_KEY": new(),
            "MYSQL_PWD": new(),
            "DB_PASSWORD": new(),
            "PWD": str(folder),
        }
        lines = [f"it said {form} and went on" for each in self.secrets for form in forms(each)]
        lines += [
            f"GET https://someone:{foreign()}@example.org/x?token={foreign()}&more=1",
            f"mysql://root:{foreign()}@db:3306/x refused",
            f"Authorization: Bearer {foreign()}",
            f"{{'authorization': 'Basic {foreign()}', 'accept': '*/*'}}",
            f"headers [('Authorization', 'Bearer {foreign()}')]",
            f'{{"password": "{foreign()}", "client_secret":"{foreign()}"}}',
            f'sasl.jaas.config=org.apache.Plain required username="u" password="{foreign()}";',
            f"fs.s3a.secret.key={foreign()} fs.s3a.access.key={foreign()} api_key: {foreign()}",
            f"-----BEGIN RSA PRIVATE KEY-----\n{foreign()}\n{foreign()}\n-----END RSA PRIVATE KEY-----",
        ]
        draw.shuffle(lines)
        self.line = "cube prices reads from token_file=/etc/rtolap/token, 17 partitions"
        self.text = "\n".join([*lines, self.line]) + "\n"
        (logs / "receiver-r1.1.log").write_text(self.text)
        given |= {
            "data_dir": folder / "data",
            "ledger": f"mysql://root:{foreign()}@127.0.0.1:1/x",
            "object_store": f"file://{folder}/store",
            "zookeeper": "127.0.0.1:1",
            "kafka": "127.0.0.1:1",
            "schema_registry": f"http://me:{foreign()}@127.0.0.1:1",
        }
        self.given = given

    def settings(self, port: int) -> Settings:
        closed = {
            "coordinator_port": 1,
            "query_http_port": port,
            "stream_load_port": 1,
            "query_tls_certificate": None,
        }
        return Settings(**{**self.given, **closed, "agent_port": 1})


@pytest.fixture
def repeating() -> Iterator[tuple[int, list[str]]]:
    """A service whose pages repeat what it is given."""
    said = [""]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{said[0]}\nfor {self.headers.get('Authorization')}\n".encode()
            self.send_response(200 if self.path == "/metrics" else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], said
    server.shutdown()
    thread.join()
    server.server_close()


def bundle_of(host: Host, port: int, path: Path) -> dict[str, str]:
    def breaks() -> object:
        raise Unavailable("it is away", found=host.text)

    more = [
        Part("more/breaks.json", breaks),
        Part("more/value.json", lambda: {"lines": host.text.splitlines()}),
    ]
    collect(host.settings(port), host.environ, more=more, each_s=3.0).write(path)
    return members(path)


@pytest.mark.parametrize("seed", range(3))
def test_no_member_holds_a_secret(seed: int, tmp_path: Path, repeating: tuple[int, list[str]]) -> None:
    host = Host(tmp_path, seed)
    port, said = repeating
    said[0] = host.text
    read = bundle_of(host, port, tmp_path / "bundle.tar.gz")
    for name, text in read.items():
        for each in host.secrets:
            assert not [form for form in forms(each) if form in text], (name, each)
        for each in host.guessed:
            assert each not in text, (name, each)
    log = read["rtolap-support/logs/logs/receiver-r1.1.log"]
    assert host.line in log, "what is no secret stays"
    assert log.count(HIDDEN) >= len(host.secrets)
    entries = {each["name"]: each for each in json.loads(read["rtolap-support/manifest.json"])["entries"]}
    assert entries["cluster/cubes.json"]["outcome"] == "missing"
    assert entries["cluster/cubes.json"]["reason"]
    assert entries["more/breaks.json"]["outcome"] == "missing"
    included = {f"rtolap-support/{name}" for name, each in entries.items() if each["outcome"] != "missing"}
    assert included == set(read) - {"rtolap-support/manifest.json"}
    assert {
        "rtolap-support/doctor.json",
        "rtolap-support/versions.json",
        f"rtolap-support/metrics/127.0.0.1:{port}.txt",
    } <= included
    shown = json.loads(read["rtolap-support/settings.json"])
    assert set(shown) == set(Settings.model_fields)
    assert shown["token_file"] == str(tmp_path / "token_file")


def test_a_mask_that_hides_nothing_is_noticed(
    tmp_path: Path, repeating: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive looks itself for what this host knows, and leaves such a member out."""
    host = Host(tmp_path, 5)
    monkeypatch.setattr(Mask, "text", lambda self, text: text)
    archive = collect(host.settings(repeating[0]), host.environ, each_s=3.0)
    (log,) = [each for each in archive.entries if each.name.endswith(".log")]
    assert (log.outcome, log.reason) == ("missing", "it held a secret after it was masked")


def test_every_setting_that_names_a_secret_is_read() -> None:
    """A new setting with a secret's file has to be known to the mask."""
    said = ("password", "token", "secret", "key", "users")
    for name, field in Settings.model_fields.items():
        is_path = "Path" in str(field.annotation)
        if is_path and any(word in (field.description or "").split(";")[0].lower() for word in said):
            known = SECRET_FILE_SETTING.search(name) or name in OPERATOR_FILE_SETTINGS
            assert known or name.endswith(("_certificate", "_ca")), name


@pytest.mark.parametrize("short", ["1", "ab", "secret", "x y"])
def test_short_and_common_secrets_leave_the_rest_readable(short: str) -> None:
    mask = Mask([short])
    assert mask.text(f"say {short} in 21 abbeys") == f"say {HIDDEN} in 21 abbeys"
    assert not mask.finds_known(mask.text(f"say {short} in 21 abbeys"))
    assert json.loads(json.dumps(mask.value({"n": 1, "s": [short]})))["s"] == [HIDDEN]


@pytest.mark.parametrize(
    "unit",
    ["x", "a.", "http://a", "://", "token", "token-", "eyJaaaaaaaa.", "-----BEGIN", "passwd= ", " :", "a@"],
)
def test_a_long_line_is_masked_in_time_that_grows_with_its_length(unit: str) -> None:
    """A pattern that looks back over the whole line would take hours here."""
    mask = Mask(["known"])
    assert len(mask.text(unit * (200_000 // len(unit)))) > 0


def test_logs_are_regular_files_and_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    outside = tmp_path / "private.txt"
    outside.write_text("of somebody else")
    (folder / "link.1.log").symlink_to(outside)
    os.mkfifo(folder / "pipe.1.log")
    with (folder / "huge.1.log").open("wb") as file:
        file.truncate(1 << 36)
        file.seek(0, os.SEEK_END)
        file.write(b"half of a line\nlast line\n")
    (folder / "one_line.1.log").write_text("x" * 5000)
    (folder / "other.txt").write_text("no log")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket.1.log"))
        tails = {each.name: each for each in log_tails([folder], each_bytes_max=1000, bytes_max=10_000)}
    assert set(tails) == {f"logs/{name}.1.log" for name in ("link", "pipe", "huge", "one_line", "socket")}
    assert [tails[f"logs/{name}.1.log"].text for name in ("link", "pipe", "socket")] == [None] * 3
    assert tails["logs/huge.1.log"].text == "last line\n"
    assert tails["logs/one_line.1.log"].text == "", "no part of a line, which may be half a secret"
    assert all(each.problem for each in tails.values())
    few = list(log_tails([folder], each_bytes_max=1000, bytes_max=5))
    assert sum(len(each.text or "") for each in few) <= 5
    (tmp_path / "linked").symlink_to(folder)
    (linked,) = log_tails([tmp_path / "linked"], each_bytes_max=1000, bytes_max=1000)
    assert linked.text is None
    (none,) = log_tails([tmp_path / "absent"], each_bytes_max=1, bytes_max=1)
    assert none.text is None
    assert none.problem


def test_the_file_is_private_bounded_and_never_replaces_another(tmp_path: Path) -> None:
    archive = Archive(Mask([]))
    archive.add_text("big.txt", "x" * (MEMBER_BYTES_MAX + 1))
    archive.add_text("small.txt", "x")
    path = tmp_path / "b.tar.gz"
    before = os.umask(0)
    try:
        archive.write(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(each.name, each.outcome) for each in archive.entries] == [
        ("big.txt", "missing"),
        ("small.txt", "included"),
    ]
    with pytest.raises(AlreadyExists):
        archive.write(path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists):
        archive.write(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_the_command_writes_a_bundle_where_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, 7)
    monkeypatch.chdir(tmp_path)
    for name, value in host.given.items():
        monkeypatch.setenv(f"RTOLAP_{name.upper()}", str(value))
    for name in ("coordinator_port", "query_http_port", "stream_load_port", "agent_port"):
        monkeypatch.setenv(f"RTOLAP_{name.upper()}", "1")
    ran = CliRunner().invoke(app, ["support-bundle", "--output", "b.tar.gz", "--each-s", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    assert said["file"] == "b.tar.gz"
    assert said["size_bytes"] == (tmp_path / "b.tar.gz").stat().st_size
    assert not [each for each in (*host.secrets, *host.guessed) if each in ran.stdout]
    assert "rtolap-support/settings.json" in members(tmp_path / "b.tar.gz")
