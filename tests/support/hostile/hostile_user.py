"""A hostile user of a whole cluster, as a process of its own.

    python -m tests.support.hostile.hostile_user TASKS.json   prints how many inputs each server took, as JSON

It goes round its tasks, a connection at a time, until each server has had what it is to have. It fails where
a server does not answer, or answers what it should refuse.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from tests.support.hostile.hostile_flight import HostileFlight
from tests.support.hostile.hostile_http import Body, HostileHttp, json_body
from tests.support.hostile.hostile_loads import load_body
from tests.support.hostile.hostile_mysql import Account, HostileMySql

_TICKET_BYTES = 96 << 20
AT_ONCE = 40  # inputs of a connection
_LOWER_PRIORITY = 10  # it would have a machine of its own: here it takes the servers' time, no more


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs for one server: at least `inputs`.

    `user`, `password`: of MySQL; None: logins that are none. `credentials`: of HTTP; None: other ones each
    time. `pages`: of HTTP, with bodies of this kind. `bombs`: SQL that wants gigabytes among them; over
    Flight, tickets that do.
    """

    server: str
    protocol: Literal["http", "mysql", "flight"]
    host: str
    port: int
    inputs: int
    user: str | None = None
    password: str = ""
    credentials: str | None = None
    pages: tuple[str, ...] = ()
    body: Literal["sql", "load"] = "sql"
    body_share: float = 0.2
    table: str = ""
    bombs: bool = False


class HostileUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    seed: int
    tasks: tuple[Task, ...]


def run(user: HostileUser) -> Counter[str]:
    """Run a user, and return how many inputs each server took."""
    rng = random.Random(user.seed)
    steps = [(task, _step(task)) for task in user.tasks]
    taken: Counter[int] = Counter()
    while unfinished := [n for n, (task, _) in enumerate(steps) if taken[n] < task.inputs]:
        for number in unfinished:
            taken[number] += steps[number][1](rng)
    found: Counter[str] = Counter()
    for number, (task, _) in enumerate(steps):
        found[task.server] += taken[number]
    return found


def _step(task: Task) -> Callable[[random.Random], int]:
    match task.protocol:
        case "mysql":
            mysql = HostileMySql(task.host, task.port, task.table, task.bombs)
            if task.user is None:
                return mysql.before_login
            account = Account(task.user, task.password)
            return lambda rng: mysql.after_login(rng, account, AT_ONCE)
        case "flight":
            server = HostileFlight(task.host, task.port, _TICKET_BYTES if task.bombs else 0)
            return lambda rng: server.call(rng, AT_ONCE) + server.send(rng)
        case "http":
            pages = tuple(page.encode() for page in task.pages)
            body: Body = (
                json_body(task.table, bombs=task.bombs) if task.body == "sql" else load_body(orc_share=0.002)
            )
            http = HostileHttp(task.host, task.port, pages, body, task.body_share)
            given = None if task.credentials is None else task.credentials.encode()
            return lambda rng: http.ask(rng, given, AT_ONCE)


def main() -> None:
    os.nice(_LOWER_PRIORITY)
    user = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HostileUser)
    print(msgspec.json.encode(run(user)).decode())


if __name__ == "__main__":
    main()
