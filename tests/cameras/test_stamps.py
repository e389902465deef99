"""Times of frames never go back, keep the camera's distances, and survive jumps of its clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hazardlens.cameras.stamps import Stamper


def test_stamps_keep_their_distances_and_begin_when_the_first_frame_came() -> None:
    stamper = Stamper(100.0, is_paced=False)
    stamper.connected()
    arrivals = [(5000.0, 102.0), (5000.04, 102.3), (5000.08, 102.1)]
    assert [stamper.stamp(*one) for one in arrivals] == pytest.approx([2.0, 2.04, 2.08])


def test_a_new_connection_goes_on_at_the_time_of_day() -> None:
    stamper = Stamper(100.0, is_paced=False)
    stamper.connected()
    stamper.stamp(5000.0, 102.0)
    stamper.connected()
    assert stamper.stamp(7.0, 160.0) == 60.0


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_is_tied_anew(jump: float) -> None:
    stamper = Stamper(0.0, is_paced=False)
    stamper.connected()
    stamper.stamp(50.0, 1.0)
    assert stamper.stamp(50.1 + jump, 1.1) == pytest.approx(1.1)
    assert stamper.stamp(50.2 + jump, 1.25) == pytest.approx(1.2)
    assert stamper.jumps == 1


def test_without_stamps_it_is_the_time_of_arrival() -> None:
    stamper = Stamper(10.0, is_paced=False)
    assert [stamper.stamp(None, now) for now in (10.5, 10.7)] == [0.5, 0.7]


def test_a_file_keeps_its_own_times() -> None:
    stamper = Stamper(0.0, is_paced=True)
    assert [stamper.stamp(one, 999.0) for one in (0.0, 0.04, 30.0)] == [0.0, 0.04, 30.0]
    assert stamper.elapsed(999.0) == 30.0


STAMPS = st.lists(
    st.tuples(st.one_of(st.none(), st.floats(-1e5, 1e5)), st.floats(0, 10), st.booleans()), min_size=1, max_size=30
)


@given(STAMPS)
def test_whatever_comes_they_rise(given_stamps: list[tuple[float | None, float, bool]]) -> None:
    stamper, now, last = Stamper(0.0, is_paced=False), 0.0, -1.0
    for stamp, step, connects in given_stamps:
        now += step
        if connects:
            stamper.connected()
        time_s = stamper.stamp(stamp, now)
        assert time_s > last
        assert stamper.elapsed(now) >= time_s
        assert time_s <= now + 5.0 + 0.001 * len(given_stamps)
        last = time_s
