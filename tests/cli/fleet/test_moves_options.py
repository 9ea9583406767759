import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.fleet.moves import parse_hours, parse_partition
from rtolap.fleet.moves.records import Hours

_MIDNIGHT_MS = 1_700_006_400_000
_HOUR_MS = 3_600_000


def test_hours_of_the_day_may_go_over_midnight() -> None:
    hours = parse_hours("22:00-06:30", undo=True)
    assert hours == Hours(22 * 60, 6 * 60 + 30, undo=True)
    held = [hour for hour in range(24) if hours.hold(_MIDNIGHT_MS + hour * _HOUR_MS)]
    assert held == [0, 1, 2, 3, 4, 5, 6, 22, 23]
    assert not hours.hold(_MIDNIGHT_MS + 6 * _HOUR_MS + _HOUR_MS // 2)
    assert parse_hours("", undo=False) is None


@pytest.mark.parametrize("text", ["22-06", "24:00-06:00", "22:00-22:00", "22:60-23:00", "always"])
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        parse_hours(text, undo=False)


def test_partitions_are_named_as_kafka_does() -> None:
    assert parse_partition("orders:3") == ("orders", 3)
    assert parse_partition("a:b:3") == ("a:b", 3)
    for text in ("orders", "orders:", ":3", "orders:-1", "orders:x"):
        with pytest.raises(DefinitionError):
            parse_partition(text)


@pytest.mark.parametrize(
    ("now_hours", "work_hours", "end_hours"),
    [
        (23, 2, 25),  # within the hours that are open
        (23, 7, 30),  # they end with the hours
        (23, 8, 47),  # the next night
        (12, 1, 23),  # closed: they begin at ten
        (12, 8, 30),
        (12, 17, 71),
    ],
)
def test_work_in_hours_of_the_day_ends_in_them(now_hours: int, work_hours: int, end_hours: int) -> None:
    hours = Hours(22 * 60, 6 * 60)
    now_ms = _MIDNIGHT_MS + now_hours * _HOUR_MS
    assert hours.after_work(now_ms, work_hours * _HOUR_MS) == _MIDNIGHT_MS + end_hours * _HOUR_MS
    assert hours.after_work(now_ms, 0) == now_ms
