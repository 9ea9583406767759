"""Calls to one node or many, in which one that fails hinders nobody: the majority decides, or a later round.
That holds for one that is away, for one that refuses our token, and for an error of its program.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from rtolap.base.errors import NotLeader, RtolapError, Unavailable

R = TypeVar("R")

log = logging.getLogger(__name__)


class NodeCalls:
    """One round of calls. A node that did not answer one gets no more in it: each would be waited for."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def is_silent(self, node: str) -> bool:
        return node in self._silent

    def ask(self, node: str, purpose: str, call: Callable[[], R]) -> R | None:
        """None where there is no answer. Raises NotLeader, and what is no error of the tree."""
        if node in self._silent:
            return None
        try:
            return call()
        except NotLeader:
            raise
        except Unavailable as error:
            self._silent.add(node)
            log.info("node %s does not answer (%s): %s", node, purpose, error)
        except RtolapError as error:
            log.warning("node %s fails (%s): %s", node, purpose, error)
        return None
