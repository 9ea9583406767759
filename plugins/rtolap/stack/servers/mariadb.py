"""A MariaDB server, of the system's package: PyPI has none."""

from __future__ import annotations

import getpass
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rtolap.base.errors import NotFound
from rtolap.stack.ports import HOST
from rtolap.stack.probes import mysql_socket_missing
from rtolap.stack.spec import ProcessSpec, run_once

_INSTALL_TIMEOUT_S = 120
_SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin"  # where Debian puts servers, not on everybody's PATH


def find_mariadb(name: str) -> str:
    """Return the path of one of its programs. Raises NotFound with the command that installs it."""
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM_FOLDERS)
    if found is None:
        raise NotFound(
            "MariaDB is needed for the ledger of a cluster",
            expected=f"{name} on the PATH",
            found="none",
            action="install it, on Debian: apt-get install --no-install-recommends mariadb-server",
        )
    return found


def mariadb_spec(
    folder: Path,
    port: int,
    *,
    databases: tuple[str, ...] = (),
    users: Mapping[str, str] | None = None,
) -> ProcessSpec:
    """Return how MariaDB is started. `users`: name -> password, no quotes in either, each with all rights on
    the databases. `root` comes in by the socket in the folder only. A commit is on disk before it is
    acknowledged."""
    folder = folder.absolute()
    data, socket = folder / "data", folder / "s.sock"
    first = folder / "first.sql"

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        first.touch(mode=0o600)
        first.write_text(_first_statements(databases, users or {}))
        if not (data / "mysql").is_dir():
            _install(data)

    return ProcessSpec(
        name="mariadb",
        folder=folder,
        address=f"{HOST}:{port}",
        ports=(port,),
        argv=(
            find_mariadb("mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={data}",
            f"--socket={socket}",
            f"--pid-file={folder / 'server.pid'}",
            f"--port={port}",
            f"--bind-address={HOST}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=1",
            f"--init-file={first}",
        ),
        prepare=prepare,
        ready=lambda _: mysql_socket_missing(socket),  # it listens once its first statements are done
        ready_timeout_s=60,
        stop_timeout_s=20,
    )


def _first_statements(databases: tuple[str, ...], users: Mapping[str, str]) -> str:
    """Return the statements that run at every start before it listens. They stand one a line, and are
    harmless the second time.

    root has no password, so it is left to those who reach the socket.
    """
    lines = [
        "DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost';",
        "FLUSH PRIVILEGES;",
    ]
    lines += [f"CREATE DATABASE IF NOT EXISTS `{database}`;" for database in databases]
    for user, password in users.items():
        lines.append(f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';")
        lines += [f"GRANT ALL ON `{database}`.* TO '{user}'@'%';" for database in databases]
    return "\n".join(lines) + "\n"


def _install(data: Path) -> None:
    """Fill the folder. The script splits a path at spaces, so it is given one without."""
    data.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rtolap-mariadb-", dir="/tmp") as name:
        link = Path(name) / "data"
        link.symlink_to(data)
        run_once(
            [
                find_mariadb("mariadb-install-db"),
                "--no-defaults",
                f"--user={getpass.getuser()}",
                f"--datadir={link}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            failure="MariaDB's data folder could not be made",
            timeout_s=_INSTALL_TIMEOUT_S,
        )
