"""Lists of methods: names that checkpoints hold stay, costs are complete, parameters stand for their method."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.core.errors import ConfigError
from penstock.core.methods import Method, Methods
from penstock.operators import aggregate, lookup, window_join
from penstock.operators.lookup import Front, HybridJoin, Inlj, MeshJoin, Partitioned, Stages


@dataclass(frozen=True)
class Some:
    size: int = 1


@dataclass(frozen=True)
class Other:
    """Of another family."""


def listed() -> Methods[Some]:
    methods = Methods(Some, default="plain", hint=" Or write pk.Some(size=2).")
    methods.add(
        Method("plain", "plain", "does it once", Some(), "logic", auto="may pick"),
        Method("odd", "odd", "does it never", Some(9), "another", auto="never picks"),
    )
    return methods


def test_parameters_are_those_given_or_those_of_the_name():
    methods = listed()
    assert methods.parameters(Some(5)) == Some(5)
    assert (methods.parameters("auto"), methods.parameters("odd")) == (Some(), Some(9))
    assert (methods.name_of("auto"), methods.name_of(Some(5)), methods.of(Some(5)).logic) == ("auto", "plain", "logic")


@pytest.mark.parametrize("method", ["plane", None, ["plain"], Other()])
def test_what_is_no_method_is_told_which_there_are(method):
    with pytest.raises(ConfigError) as refused:
        listed().of(method)
    assert str(refused.value) == f"method={method!r} is not one of auto, plain, odd. Or write pk.Some(size=2)."


@pytest.mark.parametrize("costs", [{}, {"plain": 1, "odd": 2}, {"odd": 2}])
def test_costs_are_those_of_what_auto_may_pick(costs):
    assert listed().priced({"plain": 1}) == {"plain": 1}
    with pytest.raises(TypeError, match="are not those of plain"):
        listed().priced(costs)


@pytest.mark.parametrize(
    ("methods", "names"),
    [
        (window_join.METHODS, "oa ewj ah_ewj rpwj opob opib global_order"),
        (aggregate.METHODS, "wid paned differential adapt buffering"),
        (
            lookup.METHODS,
            "broadcast inlj meshjoin r-meshjoin hybridjoin cinlj cmeshjoin chybridjoin partitioned ssij "
            "partition-based",
        ),
    ],
    ids=["window join", "aggregation", "lookup"],
)
def test_names_that_checkpoints_hold_are_still_methods(methods, names):
    """Plans and ledgers name the method that ran: a name may be added, never taken away."""
    assert {*names.split()} <= {*methods}


def test_parameters_of_aggregations_are_written_as_checkpoints_hold_them():
    """A start is refused if what an aggregation was asked to do reads otherwise than before."""
    assert str(aggregate.Buffering("5 s")) == "Buffering(slack='5 s', late='consistent')"
    assert str(aggregate.AdaptWid()) == "AdaptWid(partial=None, row=None, threshold=None, relapse=0.8, behind=())", (
        "and so does its class"
    )


@pytest.mark.parametrize(
    ("stages", "name", "found"),
    [
        (Stages(HybridJoin(slots=5)), "hybridjoin", "hybridjoin"),
        (Stages(HybridJoin(slots=5), Front(slots=3)), "chybridjoin", "chybridjoin"),
        (Stages(Inlj(), Front()), "cinlj", "cinlj"),
        (Stages(MeshJoin(loads_per_logical=2)), "r-meshjoin", "r-meshjoin"),
        (Stages(MeshJoin(loads_per_logical=2), Front()), "cr-meshjoin", "r-meshjoin"),
        (Stages(Partitioned(), Front()), "cpartitioned", "partitioned"),
    ],
)
def test_stages_are_called_after_their_back_end_whether_they_are_listed_or_not(stages, name, found):
    assert (lookup.METHODS.name_of(stages), lookup.METHODS.of(stages).name) == (name, found)
