"""The conditions that sensors of a Kafka cluster wait for, by name. Workers and the triggerer share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rtolap.fleet.operations.brokers import BrokerView
    from rtolap.fleet.operations.cluster import OpenedFleet

_SHOWN = 5


class LookResult(NamedTuple):
    """The result of a look at a cluster.

    Attributes:
        done: True if the awaited condition holds; the sensor then succeeds with `result`.
        failed: why the condition can never hold; None while it may.
    """

    done: bool
    text: str
    result: Any = True
    failed: str | None = None


def look(fleet: OpenedFleet, name: str, arguments: Mapping[str, Any]) -> LookResult:
    return LOOKS[name](fleet, **arguments)


def _nothing_left(what: str, left: Sequence[str]) -> LookResult:
    if not left:
        return LookResult(True, f"no {what}")
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return LookResult(False, f"{len(left)} {what}: {', '.join(left[:_SHOWN])}{more}")


def _nothing_moves(fleet: OpenedFleet) -> LookResult:
    return _nothing_left("moves are running", fleet.running())


def _in_sync(fleet: OpenedFleet) -> LookResult:
    return _nothing_left("partitions are under-replicated", fleet.under_replicated())


def _plan_ended(fleet: OpenedFleet, plan_id: str | None) -> LookResult:
    if plan_id is None:
        return LookResult(True, "nothing had to be moved", {})
    counts = fleet.ended(plan_id)
    if counts is None:
        return LookResult(False, f"plan {plan_id} is carried out")
    text = f"plan {plan_id} has ended with {counts}"
    return LookResult(True, text, counts, failed=text if set(counts) - {"done"} else None)


def _view(fleet: OpenedFleet, broker: int) -> tuple[BrokerView, str]:
    """Return the broker as `fleet.operations.brokers` shows it, after what happened by itself is noted."""
    view = fleet.brokers.view(broker)
    text = f"broker {view.broker} is {view.state} with {view.replicas} replicas"
    return view, f"{text}; an operation on it is not done: {view.problem}" if view.problem else text


def _may_stop(fleet: OpenedFleet, broker: int) -> LookResult:
    view, _ = _view(fleet, broker)
    may = _nothing_left(f"partitions could not be written without broker {broker}", view.stopped)
    text = "\n".join(
        [
            f"- broker {view.broker} on {view.host or 'an unknown host'} is {view.state}",
            f"- {view.replicas} replicas are on it, which nobody can read there while it is stopped",
            "- every partition that can be written now can be written without it",
        ]
    )
    described = {"host": view.host, "state": str(view.state), "replicas": view.replicas, "text": text}
    return may._replace(result=described)


def _may_retire(fleet: OpenedFleet, broker: int) -> LookResult:
    view, text = _view(fleet, broker)
    return LookResult(view.may_retire, text, str(view.state))


def _broker_state(fleet: OpenedFleet, broker: int, state: str) -> LookResult:
    view, text = _view(fleet, broker)
    return LookResult(view.state == state and not view.problem, f"{text}; expected {state}", str(view.state))


LOOKS: dict[str, Callable[..., LookResult]] = {
    "nothing_moves": _nothing_moves,
    "in_sync": _in_sync,
    "plan_ended": _plan_ended,
    "may_stop": _may_stop,
    "may_retire": _may_retire,
    "broker_state": _broker_state,
}
