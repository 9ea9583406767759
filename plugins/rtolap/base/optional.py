"""Libraries that are not installed with the product, but with one of its extras."""

from __future__ import annotations

import importlib
from typing import Any

from rtolap.base.errors import DefinitionError


def import_optional(module: str, *, needs: str, package: str, extra: str) -> Any:
    """Import a module of `package`. Raises DefinitionError, which begins with `needs` and names the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DefinitionError(
            f"{needs} that is not installed here",
            expected=f"the Python package {package}",
            found=str(error),
            action=f"pip install 'rtolap[{extra}]'",
        ) from error
