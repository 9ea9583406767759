"""`rtolap airflow-settings`: what `airflow_settings.yaml` says, applied to any Airflow.

The file is in the format of the Astro command line, which applies it by itself. Elsewhere this command does,
through the `airflow` command that is on the PATH, as the user and with the configuration that it finds there.

Entries have the types of Astro's own decoder (`settings/types.go`), which loads nothing of a file with one
wrong value: a port and the slots of a pool are integers, all else is a string, an extra of a connection and a
structured variable as JSON. So a file that this command takes is one that Astro takes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rtolap.base.errors import DefinitionError, ProcessFailed
from rtolap.base.files import shipped
from rtolap.cli.output import JsonOption, report

app = typer.Typer(no_args_is_help=True, help="Connections, pools and variables for an Airflow.")

TIMEOUT_S = 120
# field of the file → field of `airflow connections import`
_CONNECTION = {
    "conn_id": "conn_id",
    "conn_type": "conn_type",
    "conn_host": "host",
    "conn_schema": "schema",
    "conn_login": "login",
    "conn_password": "password",
    "conn_port": "port",
    "conn_extra": "extra",
}
_POOL = {"pool_name", "pool_slot", "pool_description"}
_VARIABLE = {"variable_name", "variable_value"}
_INTEGERS = {"conn_port", "pool_slot"}


@dataclass(frozen=True)
class AirflowSettings:
    """The settings in the form that `airflow … import` reads."""

    connections: dict[str, dict[str, Any]]
    pools: dict[str, dict[str, Any]]
    variables: dict[str, Any]


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="A file in the format of airflow_settings.yaml.")],
    as_json: JsonOption = False,
) -> None:
    """Create or replace the entries of the file. Everything else stays as it is."""
    settings = read_settings(file)
    import_into(settings, run_airflow)
    names = {
        "connections": sorted(settings.connections),
        "pools": sorted(settings.pools),
        "variables": sorted(settings.variables),
    }
    messages = (f"{kind}: {', '.join(named_settings) or 'none'}" for kind, named_settings in names.items())
    report(names, *messages, as_json=as_json)


@app.command("dags-folder")
def dags_folder() -> None:
    """Print the folder of rtolap's DAGs, for a DAG bundle of an existing Airflow."""
    print(shipped("dags"))


def read_settings(file: Path) -> AirflowSettings:
    """Read the file of Airflow's settings. Raises DefinitionError naming the file and the entry. Entries
    without a name are Astro's blank ones."""
    try:
        content = yaml.safe_load(file.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise DefinitionError(f"{file} cannot be read", found=str(error)) from error
    root = content.get("airflow") if isinstance(content, dict) else None
    if not isinstance(root, dict):
        raise DefinitionError(f"{file} is no airflow_settings.yaml", expected="`airflow:` at the top")
    return AirflowSettings(
        connections={
            entry["conn_id"]: _connection(entry)
            for entry in _entries(root, "connections", "conn_id", set(_CONNECTION), file)
        },
        pools={
            entry["pool_name"]: {
                "slots": int(entry.get("pool_slot") or 0),
                "description": entry.get("pool_description") or "",
                "include_deferred": False,
            }
            for entry in _entries(root, "pools", "pool_name", _POOL, file)
        },
        variables={
            entry["variable_name"]: entry.get("variable_value") or ""
            for entry in _entries(root, "variables", "variable_name", _VARIABLE, file)
        },
    )


def _entries(
    root: Mapping[str, Any], section: str, name_key: str, known: set[str], file: Path
) -> list[dict[str, Any]]:
    entries = root.get(section) or []
    if not isinstance(entries, list):
        raise DefinitionError(f"{file}, airflow.{section}", expected="a list", found=type(entries).__name__)
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not set(entry) <= known:
            raise DefinitionError(
                f"{file}, airflow.{section}, entry {number}", expected=", ".join(sorted(known)), found=entry
            )
        for field, value in entry.items():
            _check_type(f"{file}, airflow.{section}, entry {number}: {field}", field, value)
    return [entry for entry in entries if entry.get(name_key)]


def _check_type(place: str, field: str, value: object) -> None:
    """Check the type of a field. An empty value is Astro's blank. The message leaves values out, since one
    may be a password."""
    kind = int if field in _INTEGERS else str
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return
    raise DefinitionError(
        place,
        expected="an integer" if kind is int else "a string; a list or an object as JSON, in quotes",
        found=f"a value of type {type(value).__name__}",
    )


def _connection(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a connection; those that are empty in the file are omitted, so that Airflow's own
    defaults hold.
    """
    return {
        target: entry[source]
        for source, target in _CONNECTION.items()
        if source != "conn_id" and entry.get(source) not in (None, "")
    }


def import_into(settings: AirflowSettings, run: Callable[[list[str]], None]) -> None:
    """Import the settings by three calls of `run`, each through a private file: secrets stay off the command
    line."""
    commands = {
        "connections": (["connections", "import", "--overwrite"], settings.connections),
        "pools": (["pools", "import"], settings.pools),
        "variables": (["variables", "import"], settings.variables),
    }
    with tempfile.TemporaryDirectory(prefix="rtolap-settings-") as folder:
        for name, (command, content) in commands.items():
            if not content:
                continue
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps(content))
            path.chmod(0o600)
            run([*command, str(path)])


def run_airflow(arguments: list[str]) -> None:
    program = shutil.which("airflow")
    if program is None:
        raise DefinitionError(
            "airflow is not on the PATH", action="activate the environment in which Airflow is installed"
        )
    done = subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise ProcessFailed(
            f"airflow {arguments[0]} {arguments[1]} failed",
            found=(done.stderr or done.stdout)[-2000:],
            action="see that Airflow's database is reachable from here",
        )
