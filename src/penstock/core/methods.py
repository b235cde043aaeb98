"""The methods of a family of operators: the name, parameters, algorithm and description of each.

A family has one list, used by everything that names methods: ``method=`` and its errors, `explain()`, the planner.
Configs import the list empty; the family's `registry`, which knows the algorithms, fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

from penstock.core.budget import Budget
from penstock.core.errors import ConfigError
from penstock.core.meter import Meter
from penstock.core.operator import Logic, Operator, State
from penstock.core.pages import PageStore
from penstock.core.rows import RowType

P = TypeVar("P")
"""The parameters of a family's methods."""
C = TypeVar("C")


class MakeLogic(Protocol):
    """Makes the logic of an operator on one shard; `config` is the operator, which holds the method's parameters."""

    def __call__(
        self,
        config: Any,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> Logic:
        """The logic, ready to go on from `state`."""
        ...


@dataclass(frozen=True)
class Method(Generic[P]):
    """One way to run an operator: `title` is what the literature calls it, `sentence` what it does."""

    name: str
    title: str
    sentence: str
    parameters: P
    """The parameters that the name stands for."""
    logic: MakeLogic
    auto: Literal["may pick", "never picks"]
    """Whether ``method="auto"`` may choose it: then the planner has a cost for it."""

    @property
    def line(self) -> str:
        """Title and sentence, as `explain()` shows them."""
        return f"{self.title[0].upper()}{self.title[1:]}: {self.sentence}"


class Methods(dict[str, Method[P]]):
    """The methods of a family by their names, the simplest first.

    ``"auto"`` is a name, too: of the `default`, if no planner decides.

    >>> sorts = Methods(int, default="plain")
    >>> sorts.add(Method("plain", "plain sort", "sorts once", 1, sorted, auto="may pick"))
    >>> sorts.of("auto").line, sorts.parameters("plain"), sorts.parameters(7)
    ('Plain sort: sorts once', 1, 7)
    """

    def __init__(self, kind: type[P], default: str, hint: str = "") -> None:
        super().__init__()
        self._kind, self._default, self._hint = kind, default, hint

    def __repr__(self) -> str:
        return f"methods {', '.join(self)}"

    def add(self, *methods: Method[P]) -> None:
        """List some methods."""
        self.update({method.name: method for method in methods})

    def of(self, method: str | P) -> Method[P]:
        """The method that a name, or the parameters of one, stand for."""
        if isinstance(method, self._kind):
            return next(each for each in self.values() if self._alike(each.parameters, method))
        name = self._default if method == "auto" else method
        if not isinstance(name, str) or name not in self:
            raise ConfigError(f"method={method!r} is not one of {', '.join(('auto', *self))}.{self._hint}")
        return self[name]

    def parameters(self, method: str | P) -> P:
        """The parameters as given, or those that the name stands for."""
        return method if isinstance(method, self._kind) else self.of(method).parameters

    def name_of(self, method: str | P) -> str:
        """What to call a method in reports."""
        return method if isinstance(method, str) else self.of(method).name

    def explained(self, method: str | P, reason: str | None = None) -> tuple[str, str]:
        """The method of an operator and the reason, as in `explain()`; without a reason, the user asked for it."""
        name = self.name_of(method)
        said = f"method={name!r} was asked for" if reason is None else reason
        return f"method {name} ({self.of(method).line})", f"because {said}"

    def priced(self, costs: Mapping[str, C]) -> dict[str, C]:
        """The cost of each method that ``method="auto"`` may choose, in the order of the list; none may be missing."""
        planned = [name for name, method in self.items() if method.auto == "may pick"]
        if {*planned} != {*costs}:
            raise TypeError(f"Costs of {', '.join(costs)} are not those of {', '.join(planned)}.")
        return {name: costs[name] for name in planned}

    def _alike(self, listed: Any, given: Any) -> bool:
        """Whether some parameters are those of a listed method."""
        return type(listed) is type(given)


class ByMethod(Operator, Generic[P]):
    """An operator with several methods to run by: `method` names one of its family's, or gives the parameters."""

    __slots__ = ()

    methods: ClassVar[Methods[Any]]
    method: Any

    @property
    def parameters(self) -> P:
        """The parameters of the method: those given, or those that its name stands for."""
        return self.methods.parameters(self.method)  # type: ignore[no-any-return]

    @property
    def method_name(self) -> str:
        """The name of the method that runs."""
        return self.methods.name_of(self.method)

    def with_method(self, method: str) -> Self:
        """The same operator with another method."""
        return replace(cast(Any, self), method=method)  # type: ignore[no-any-return]

    def logic(
        self,
        inputs: tuple[RowType, ...],
        store: PageStore,
        budget: Budget,
        state: State,
        meter: Meter | None = None,
    ) -> Logic:
        """The algorithm of the method; for 'auto', if no planner has decided, the family's default."""
        self.check_state(state)
        return self.methods.of(self.method).logic(self, inputs, store, budget, state, meter)

    def check_state(self, state: State) -> None:
        """Raise an error if the method cannot resume from the state of another."""
