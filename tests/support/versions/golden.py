"""Messages that a release has written, kept as JSON: later versions read them as it did.

    python -m tests.support.versions.golden COMMIT     writes golden.json anew, by the code of that commit

It is run once for a release, with its commit, and at no other time: what this version's tests refuse would
break a cluster that is upgraded service by service.

Of each type there are two messages: `least` has no field with a default, and is kept with all that is read of
it, so that no default changes its meaning; `most` has all fields.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from tests.support.paths import PROJECT
from tests.support.versions.drawn import drawn, read
from tests.support.versions.released import released_plugins
from tests.support.versions.wire_types import WireType, wire_types

PATH = Path(__file__).with_name("golden.json")


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def whole(kind: WireType, value: Any) -> Any:
    """Return everything that is read of a message, defaults too, as JSON."""
    return json.loads(json.dumps(_whole(read(kind, value)), default=str))


def _whole(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, msgspec.Struct):
        said = {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(type(value))}
        return {name: _whole(each) for name, each in said.items() if each is not msgspec.UNSET}
    if isinstance(value, Mapping):
        return {str(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(_whole(each) for each in value)
    return msgspec.to_builtins(value)


def make(commit: str) -> dict[str, Any]:
    messages = {}
    for name, kind in wire_types().items():
        least, most = drawn(kind, name, optional=0.0), drawn(kind, name, optional=1.0)
        messages[name] = {"least": least, "read": whole(kind, least), "most": most}
    return {"commit": commit, "messages": messages}


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plugins = released_plugins(commit, Path(folder))
        path = os.pathsep.join((str(PROJECT), str(plugins)))
        arguments = [sys.executable, "-m", "tests.support.versions.golden", "--here", commit]
        subprocess.run(arguments, env={**os.environ, "PYTHONPATH": path}, cwd=PROJECT, check=True)


def write(commit: str) -> None:
    made = make(commit)
    lines = [f"{json.dumps(name)}:{json.dumps(each)}" for name, each in made["messages"].items()]
    PATH.write_text(f'{{"commit":{json.dumps(commit)},"messages":{{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        write(sys.argv[2])
    else:
        main(sys.argv[1])
