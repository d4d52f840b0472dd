"""The control group is a fixed, even share of the names."""

from __future__ import annotations

import pytest

from prefetch.plan.rules import is_control

NAMES = [f"cms:/store/mc/f{i}.root" for i in range(20_000)]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_share_is_met(share: float) -> None:
    assert is_control(NAMES, share).mean() == pytest.approx(share, abs=0.01)


def test_a_name_stays_in_its_group() -> None:
    group = is_control(NAMES, 0.05)
    assert (is_control(NAMES[::-1], 0.05)[::-1] == group).all()
    chosen = [name[-9:] for name, is_in in zip(NAMES[:160], group[:160], strict=True) if is_in]
    assert chosen == ["/f48.root", "/f79.root", "f102.root", "f141.root", "f156.root"]
