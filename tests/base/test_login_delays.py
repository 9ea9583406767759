"""How long tries wait after wrong passwords, and that this is remembered of a bounded number."""

from __future__ import annotations

from rtolap.base.users import DELAY_MAX_S, FORGET_S, REMEMBERED_MAX, LoginDelays


def test_each_wrong_password_costs_twice_as_much_until_a_right_one() -> None:
    delays, waited = LoginDelays(), []
    for _ in range(12):
        waited.append(delays.delay_s("ann", "here"))
        delays.failed("ann", "here")
    assert waited[:7] == [0, 0, 0, 0.25, 0.5, 1, 2]
    assert set(waited[7:]) == {DELAY_MAX_S}
    assert not delays.delay_s("ann", "there")
    assert not delays.delay_s("bob", "here")
    delays.succeeded("ann", "here")
    assert not delays.delay_s("ann", "here")


def test_it_is_forgotten_after_a_while() -> None:
    now_s = [0.0]
    delays = LoginDelays(lambda: now_s[0])
    for _ in range(9):
        delays.failed("ann", "here")
    assert delays.delay_s("ann", "here") == DELAY_MAX_S
    now_s[0] = FORGET_S + 1
    assert not delays.delay_s("ann", "here")
    delays.failed("ann", "here")
    assert not delays.delay_s("ann", "here")


def test_made_up_names_fill_no_memory() -> None:
    delays = LoginDelays()
    for number in range(REMEMBERED_MAX + 100):
        delays.failed(f"name {number}", "here")
    assert len(delays) == REMEMBERED_MAX
