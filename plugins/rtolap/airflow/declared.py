"""The processes of a kind that this deployment runs: a Variable, else a file in `include`, else a default.

Each entry is a mapping, in JSON or YAML. `Kind` says where entries stand and how one is read; `receivers`,
`loaders` and `subscriptions` are the kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rtolap.base.errors import DefinitionError

ENTRIES_MAX = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Kind:
    """`plural` names the Variable (`rtolap_<plural>`) and the file (`<plural>.yaml`, a list, or a mapping
    with the list under that name). `parse_one` gives an operator's arguments, of which `identity` is unique.
    `default` gives the entries where neither is there, from what else stands in `include`.
    """

    plural: str
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    identity: str
    parse_one: Callable[[Mapping[str, Any], str], dict[str, Any]]
    default: Callable[[Path], Sequence[Mapping[str, Any]]] = lambda include_dir: ()

    @property
    def variable(self) -> str:
        return f"rtolap_{self.plural}"

    def declared(self, variable: object, include_dir: Path) -> list[dict[str, Any]]:
        """Operator arguments, one set each. `variable`: the Variable's decoded value, None if it is not set.
        Raises DefinitionError naming the entry, or that there is none."""
        if variable is not None:
            return self.parse(variable, f"Variable {self.variable}")
        path = include_dir / f"{self.plural}.yaml"
        if not path.exists():
            return self.parse(
                self.default(include_dir),
                f"neither Variable {self.variable} nor {path} is there; the default",
            )
        try:
            content = yaml.safe_load(path.read_text())
        except yaml.YAMLError as error:
            raise DefinitionError(f"{path} is not YAML", found=str(error)) from error
        if isinstance(content, dict):
            content = content.get(self.plural)
        return self.parse(content, str(path))

    def parse(self, declared: object, place: str) -> list[dict[str, Any]]:
        if not isinstance(declared, Sequence) or isinstance(declared, str) or not declared:
            raise DefinitionError(f"{place} declares no {self.plural}", expected=f"a list of {self._fields}")
        if len(declared) > ENTRIES_MAX:
            raise DefinitionError(f"{place} declares too many", expected=ENTRIES_MAX, found=len(declared))
        parsed = [self._one(entry, f"{place}, entry {number}") for number, entry in enumerate(declared, 1)]
        names = [parsed_entry[self.identity] for parsed_entry in parsed]
        if len(set(names)) != len(names):
            raise DefinitionError(f"{place} names one of its {self.plural} twice", found=sorted(names))
        return parsed

    def _one(self, entry: object, place: str) -> dict[str, Any]:
        known = {*self.needed, *self.optional}
        if not isinstance(entry, dict) or not set(self.needed) <= set(entry) <= known:
            raise DefinitionError(f"{place} is wrong", expected=self._fields, found=repr(entry))
        return self.parse_one(entry, place)

    @property
    def _fields(self) -> str:
        return f"{{{', '.join((*self.needed, *(f'{name}?' for name in self.optional)))}}}"


def checked_name(entry: Mapping[str, Any], field: str, place: str) -> str:
    value = entry[field]
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise DefinitionError(
            f"{place} has a wrong {field}", expected="letters, digits and . _ -", found=repr(value)
        )
    return value


def checked_port(entry: Mapping[str, Any], place: str, *, smallest: int) -> int:
    port = entry.get("port", 0)
    if isinstance(port, bool) or not isinstance(port, int) or not smallest <= port < 65536:
        raise DefinitionError(f"{place} has a wrong port", expected=f"{smallest} to 65535", found=repr(port))
    return port
