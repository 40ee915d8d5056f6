"""A flow that several slow down."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from pointsman.proxy.brakes import Brake


class Flow:
    def __init__(self) -> None:
        self.told: list[str] = []

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans())))
def test_it_flows_while_nobody_holds_it_whoever_said_what_how_often(steps: list[tuple[int, bool]]) -> None:
    flow = Flow()
    brakes = Brake.two_of(flow)
    held = [False, False]
    for which, holds in steps:
        if holds:
            brakes[which].pause()
        else:
            brakes[which].resume()
        held[which] = holds
        assert [brake.is_held for brake in brakes] == held
        assert (flow.told[-1:] == ["pause"]) is any(held)
    assert all(len(list(same)) == 1 for _, same in groupby(flow.told))  # each word once, in turns
