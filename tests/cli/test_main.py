"""Wiring of the command line."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rtolap.base.errors import NotFound
from rtolap.cli import main
from rtolap.cli.local import stack as stack_commands
from rtolap.cli.local.running_stack import adopt_running_stack, no_stack_note
from rtolap.cli.output import errors, print_table, text_table
from rtolap.cli.produce import find_topic
from rtolap.stack.environment import rtolap_settings
from rtolap.stack.layout import StackLayout
from rtolap.stack.lifecycle import Stack
from rtolap.stack.state import DEFAULT_PORTS, StackState, save_state
from typer.testing import CliRunner

from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_producer import MemoryAdmin

_HEAVY = ("pyarrow", "duckdb", "fastapi", "confluent_kafka", "kazoo", "airflow", "pyspark", "numpy")


def _rtolap(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rtolap.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


def _called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this process. What nobody expects is raised."""
    with pytest.raises(SystemExit) as ended, errors():
        main.app(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


@pytest.mark.parametrize("name", sorted(main.MOUNTS))
def test_every_mounted_command_loads_and_has_help(name: str) -> None:
    command = main.load(name)
    assert command.name == name
    assert command.help


def test_help_lists_every_command_without_loading_libraries() -> None:
    script = (
        "import sys\nfrom rtolap.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [name for name in {_HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.rstrip().endswith("LOADED []")
    for name in main.MOUNTS:
        assert name in done.stdout


def test_cycles_are_looked_for_again_when_a_command_is_loaded_but_not_among_its_imports() -> None:
    script = (
        "import gc, sys\nfrom rtolap.cli import main\n"
        "looked = []\nload = main.load\n"
        "def loaded(name):\n    looked.append(gc.isenabled())\n    return load(name)\n"
        "main.load = loaded\nsys.argv[1:] = ['validate', '--help']\n"
        "main.app.callback()(lambda: looked.append((gc.isenabled(), gc.get_freeze_count() > 10_000)))\n"
        "try:\n    main.main()\nexcept SystemExit:\n    print('LOOKED', looked, gc.isenabled())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.rstrip().endswith("LOOKED [False, (True, True)] True"), done


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("validate", str(Path("include").resolve())), 0),
        (("validate", "nowhere"), 1),
        (("query", "serve", "--no"), 2),
    ],
)
def test_nothing_is_printed_below_the_result_of_a_command(arguments: tuple[str, ...], status: int) -> None:
    """A command that has loaded the engine ends without reports of leaked types by its libraries."""
    done = _rtolap(*arguments)
    assert done.returncode == status, done
    assert "leaked" not in done.stderr
    assert bool(done.stderr) == bool(status)


def test_an_exit_function_of_a_library_runs_and_the_status_is_the_commands(tmp_path: Path) -> None:
    script = """
        import atexit, sys, threading, time
        from pathlib import Path
        from rtolap.cli import main

        left = Path(sys.argv[1])

        def say_later() -> None:
            time.sleep(0.2)
            left.write_text("thread")

        def command() -> None:
            atexit.register(lambda: left.write_text(left.read_text() + ", exit function"))
            threading.Thread(target=say_later).start()
            raise SystemExit(7)

        main.app = command
        main.main()
    """
    left = tmp_path / "left"
    command = [sys.executable, "-c", textwrap.dedent(script), str(left)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert left.read_text() == "thread, exit function"


def _ended_with_output_to(stdout: int) -> tuple[int, str]:
    script = "import sys\nfrom rtolap.cli.output import end_now\nsys.stdout.write('x')\nend_now()"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_output_that_cannot_be_written_is_an_error_and_a_reader_that_went_away_is_silent() -> None:
    with Path("/dev/full").open("w") as full:
        refused = _ended_with_output_to(full.fileno())
    assert refused == (1, "error: the output cannot be written; found No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert _ended_with_output_to(writing) == (1, "")
    finally:
        os.close(writing)


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert _rtolap("no-such-command").returncode == 2
    assert _called(capsys, "stack", "up", "--no-such-option")[0] == 2


def test_an_rtolap_error_exits_with_1_and_shows_no_traceback(tmp_path: Path) -> None:
    done = _rtolap("stack", "status", "--dir", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "there is no stack here" in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_turns_only_errors_raised_on_purpose_into_exit_codes() -> None:
    with pytest.raises(SystemExit) as exit_info, errors():
        raise NotFound("gone [bold]")
    assert exit_info.value.code == 1
    with pytest.raises(ZeroDivisionError), errors():
        raise ZeroDivisionError
    with pytest.raises(BlockingIOError), errors():
        raise BlockingIOError(errno.EAGAIN, "of a socket, which nobody has named")


@pytest.mark.parametrize(
    "command",
    [
        ("validate",),
        ("verify",),
        ("dump",),
        ("airflow-settings", "apply"),
        ("fleet", "stages", "--looks"),
        ("fleet", "slow", "--looks"),
    ],
)
@pytest.mark.parametrize("kind", ["too long", "a loop", "a folder", "no text", "nothing", "not readable"])
def test_whatever_a_path_is_wrong_in_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], kind: str
) -> None:
    match kind:
        case "too long":
            path = tmp_path / ("x" * 300)
        case "a folder":
            path = tmp_path / "file.yaml"
            (path / "below").mkdir(parents=True)
        case "a loop":
            path = tmp_path / "file.yaml"
            path.symlink_to(path)
        case "no text":
            path = tmp_path / "file.yaml"
            path.write_bytes(random.Random(kind).randbytes(1000))
        case "not readable":
            path = Path("/proc/self/mem")
        case _:
            path = tmp_path / "file.yaml"
    code, output, complaints = _called(capsys, *command, str(path))
    assert code in (1, 2), (output, complaints)
    assert str(path) in (output + complaints).replace("\n", "")


@pytest.mark.parametrize(("words", "offered"), [("rtolap sta", "stack"), ("rtolap stack d", "down")])
def test_completion_knows_commands_and_their_parts(words: str, offered: str) -> None:
    environment = {
        **os.environ,
        "_RTOLAP_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    script = "from rtolap.cli.main import app; app(prog_name='rtolap')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == [offered]


def test_tables_print_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "rows"], [("a", 1), ("b", None)], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "rows": 1}, {"name": "b", "rows": None}]


def test_a_running_stack_is_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = StackLayout(tmp_path / ".stack")
    layout.root.mkdir()
    ports = DEFAULT_PORTS | {"kafka": 19092}
    save_state(layout, StackState(ports, ("kafka",), rtolap_settings(layout, ports)))
    (tmp_path / "below").mkdir()
    environment: dict[str, str] = {}
    monkeypatch.chdir(tmp_path / "below")
    adopt_running_stack(environment)
    assert environment["RTOLAP_KAFKA"] == "127.0.0.1:19092"


def test_a_given_setting_keeps_a_running_stack_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = StackLayout(tmp_path / ".stack")
    layout.root.mkdir()
    save_state(layout, StackState(dict(DEFAULT_PORTS), (), rtolap_settings(layout, DEFAULT_PORTS)))
    environment = {"RTOLAP_KAFKA": "elsewhere:9092"}
    monkeypatch.chdir(tmp_path)
    adopt_running_stack(environment)
    assert environment == {"RTOLAP_KAFKA": "elsewhere:9092"}


def test_every_command_that_shows_or_changes_something_speaks_json() -> None:
    """Not: processes that run until they are stopped, and a log or a path as it is."""
    servers = {
        *("agent serve", "agent sleep", "coordinator serve", "loader run", "query serve", "receiver serve"),
        *("fleet serve", "publish serve", "sep serve", "spark serve", "storage serve", "stream-load serve"),
    }
    as_it_is = {"agent log", "airflow-settings dags-folder", "stack logs"}
    switches = {"agent shutdown", "agent stop"}

    def without_json(command: Any, words: str) -> set[str]:
        if hasattr(command, "commands"):
            parts = command.commands.items()
            return set().union(*(without_json(part, f"{words} {name}") for name, part in parts))
        return set() if any("--json" in option.opts for option in command.params) else {words}

    found = set().union(*(without_json(main.load(name), name) for name in main.MOUNTS))
    assert found == servers | as_it_is | switches


def test_a_pipe_gets_one_line_a_row_and_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "rows"], [("a" * 200, 1), ("tab\there", None)])
    assert capsys.readouterr().out == f"name\trows\n{'a' * 200}\t1\ntab\\there\t\n"


def test_a_table_fits_eighty_columns() -> None:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    columns = [f"column_{at}" for at in range(6)]
    console.print(text_table(columns, [tuple("x" * 25 for _ in columns)]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in lines) <= 80


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RTOLAP_")}


def test_elsewhere_it_is_said_where_a_stack_was_looked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rtolap.cli.main", "sql", "-e", "select 1"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=without_settings(), timeout=60, check=False
    )
    assert done.returncode == 1
    assert f"no stack was found: .stack/stack.json was looked for in {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
    assert no_stack_note({"RTOLAP_KAFKA": "elsewhere:9092"}) is None


def test_an_impossible_folder_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, _, told = _called(capsys, "stack", "up", "--dir", str(tmp_path / "file" / "stack"))
    assert code == 1
    assert f"the stack's folder {tmp_path / 'file' / 'stack'} cannot be made" in told
    assert "Traceback" not in told


def test_stopping_nothing_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = _called(capsys, "stack", "down", "--dir", str(tmp_path / "none"))
    assert code == 0
    assert f"there is no stack in {tmp_path / 'none'}" in shown


def test_producing_to_a_new_topic_says_what_to_add() -> None:
    broker = MemoryBroker()
    with pytest.raises(NotFound, match="there is no topic fresh; add --partitions 4"):
        find_topic(MemoryAdmin(broker), "fresh")
    broker.create("fresh", 2)
    find_topic(MemoryAdmin(broker), "fresh")


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_only_ports_of_parts_that_were_started_are_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: tuple[str, ...]
) -> None:
    state = StackState(dict(DEFAULT_PORTS), ("zookeeper", "kafka", "query"), {})
    monkeypatch.setattr(Stack, "up", lambda *asked, **options: state)
    done = CliRunner().invoke(stack_commands.app, ["up", "--dir", str(tmp_path), *how])
    assert done.exit_code == 0, done.output
    if how:
        shown = json.loads(done.stdout)["ports"]
    else:
        lines = [line.split() for line in done.stdout.splitlines() if "127.0.0.1:" in line]
        shown = {words[0]: int(words[1].partition(":")[2]) for words in lines if words[0] in DEFAULT_PORTS}
    names = ("zookeeper", "kafka", "kafka-controller", "query-http", "query-mysql")
    assert shown == {name: DEFAULT_PORTS[name] for name in names}
