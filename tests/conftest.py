"""What all tests share: how many examples a property gets, and which ones.

Hypothesis profiles: `fast` for the inner loop and `ci` for everyone draw the same examples in every run, so the same
code always gets the same verdict. `fuzz` (``make fuzz``) and `deep` draw anew, and print what reproduces a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from penstock.core.budget import Budget
from penstock.core.kept import hand_over
from tests.postgres import MISSING, PostgresMissingError, server

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
_FIXED = {"derandomize": True, "database": None}
_ANEW = {"derandomize": False, "print_blob": True}
settings.register_profile("fast", max_examples=20, **_COMMON, **_FIXED)
settings.register_profile("ci", max_examples=40, **_COMMON, **_FIXED)
settings.register_profile("fuzz", max_examples=400, **_COMMON, **_ANEW)
settings.register_profile("deep", max_examples=50_000, **_COMMON, **_ANEW)
settings.load_profile("ci")

# Hypothesis also draws constants found in the modules that happen to be loaded. Which these are depends on the tests
# that ran before in the same process, so a fixed draw must not use them.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("draws", "random cases over everything a user can combine (tests/draws)")
    group.addoption("--draw-seed", default="fixed", help="which cases are drawn: the same seed draws the same cases")
    group.addoption("--draw-cases", type=int, help="how many cases each test of tests/draws draws")
    group.addoption("--draw", help="only the case of this seed, as a failure prints it")


@pytest.fixture
def draws(request: pytest.FixtureRequest) -> Callable[[int], Iterator[str]]:
    """The seeds of a test's cases: ``for seed in draws(200)``. Options of the command line go first."""
    one, seed = request.config.getoption("--draw"), request.config.getoption("--draw-seed")
    asked = request.config.getoption("--draw-cases")
    return lambda count: iter([one] if one else [f"{seed}/{number}" for number in range(asked or count)])


@pytest.fixture
def nothing_kept() -> None:
    """Nothing stays of tables that were looked up in before."""
    hand_over(Budget(10**9), 0)


@pytest.fixture(scope="session")
def postgres_if_there() -> Iterator[str | None]:
    """The address of a PostgreSQL of our own, or None where it is not installed."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(server())
        except PostgresMissingError:
            url = None
        yield url


@pytest.fixture(scope="session")
def postgres_server(postgres_if_there: str | None) -> str:
    """The same, for tests that are skipped without it."""
    if postgres_if_there is None:
        pytest.skip(MISSING)
    return postgres_if_there
