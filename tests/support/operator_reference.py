"""The table of operators and sensors in docs/airflow.md, made of their signatures.

python -m tests.support.operator_reference        prints it
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

from airflow.sdk import BaseOperator
from rtolap.airflow import operators, sensors

# Bases whose parameters their subclasses take too; of Airflow's own classes they are Airflow's to describe.
_OURS = "rtolap.airflow."
_HIDDEN = {"self", "kwargs", "params"}
HEAD = "| class | parameters |\n|---|---|"


def table() -> str:
    return "\n".join([HEAD, *(_row(kind) for kind in classes())])


def classes() -> list[type[BaseOperator]]:
    """Return the operators and sensors that DAGs use, in the order of their modules: bases are left out."""
    found: list[type[BaseOperator]] = []
    for package in (operators, sensors):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            members = vars(importlib.import_module(module.name)).values()
            found += [
                kind
                for kind in members
                if inspect.isclass(kind)
                and issubclass(kind, BaseOperator)
                and kind.__module__ == module.name
                and not (kind.__doc__ or "").startswith("Base of")
            ]
    return found


def parameters(kind: type[BaseOperator]) -> dict[str, Any]:
    """Name → default, of the class and those of its bases that are ours; the class's own first."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith(_OURS):
            continue
        own = vars(base).get("__init__")
        if own is None:
            continue
        signature = inspect.signature(own)
        for parameter in signature.parameters.values():
            if parameter.name not in _HIDDEN:
                found.setdefault(parameter.name, parameter.default)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            break
    return {name: default for name, default in found.items() if not _is_set_by(kind, name)}


def _is_set_by(kind: type[BaseOperator], name: str) -> bool:
    """Return whether the class itself gives this parameter to its base, so that nobody else may."""
    for base in kind.__mro__:
        own = vars(base).get("__init__") if base.__module__.startswith(_OURS) else None
        if own is None:
            continue
        if name in inspect.signature(own).parameters:
            return False
        if f"{name}=" in inspect.getsource(own).split("super().__init__(")[-1].split(")\n")[0]:
            return True
    return False


def _row(kind: type[BaseOperator]) -> str:
    templated = set(kind.template_fields)
    words = [
        f"`{name}`{'*' if name in templated else ''}{_default(default)}"
        for name, default in parameters(kind).items()
    ]
    return f"| `{kind.__module__.removeprefix(_OURS)}.{kind.__qualname__}` | {', '.join(words)} |"


def _default(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return ""
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f" = {default}" if not isinstance(default, str) else f' = "{default}"'


if __name__ == "__main__":
    print(table())
