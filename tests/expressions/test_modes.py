"""Whether an expression goes by Spark's ANSI mode is told from the expression; in doubt, it does."""

from __future__ import annotations

import pytest

from penstock.expressions.evaluate import goes_by_ansi
from tests.expressions.cases import ROWS

BY_ANSI = [
    "n + 1",
    "i - i",
    "n * n",
    "-n",
    "abs(i)",
    "n / i",
    "n % i",
    "n div i",
    "n div -1",
    "n / 0",
    "n % 0",
    "cast(s as int)",
    "cast(s as double)",
    "cast(s as date)",
    "s = 5",
    "s < d",
    "d > '2024-01-01'",
    "n in ('1', '2')",
    "cast(n as int)",
    "cast(x as bigint)",
    "cast(x as decimal(10, 2))",
    "cast(n as decimal(5, 2))",
    "cast(m as string)",
    "cast(m as decimal(2, 1))",
    "coalesce(f, i)",
    "f > n",
    "array(1, 2)[5]",
    "element_at(array(1, 2), 5)",
    "size(array(1, 2))",
    "make_date(i, i, i)",
    "round(x, 2)",
    "floor(x)",
    "left(s, n)",
    "b and n + 1 > 0",
]

IN_BOTH_MODES = [
    "n > 5",
    "n > 5.5",
    "x * 2 > 5",
    "x / 2",
    "n / 2",
    "n % 10 = 3",
    "n div 10",
    "m + 1",
    "-x",
    "abs(m)",
    "cast(i as bigint)",
    "cast(n as double)",
    "cast(n as string)",
    "cast(i as decimal(12, 2))",
    "try_cast(s as int)",
    "try_cast(n as int)",
    "coalesce(i, n)",
    "case when b then s else 'none' end",
    "n & 255",
    "s like 'a%' or s rlike '^b+'",
    "upper(s) || lower(s)",
    "substring(s, 2, 3)",
    "left(s, i)",
    "ts > ts + interval 10 seconds",
    "year(d)",
    "cast(ts as date)",
    "date_trunc('hour', ts)",
    "datediff(d, d)",
    "d + 1",
    "cast(ts as string)",
    "array(i, n)",
    "named_struct('a', n, 'b', s)",
    "n is null and not b",
    "100L",
]


@pytest.mark.parametrize("expression", BY_ANSI)
def test_what_may_fail_or_is_widened_otherwise_goes_by_the_mode(expression):
    assert goes_by_ansi(expression, ROWS.schema)


@pytest.mark.parametrize("expression", IN_BOTH_MODES)
def test_what_cannot_fail_does_not(expression):
    assert not goes_by_ansi(expression, ROWS.schema)


def test_a_condition_on_pairs_goes_by_the_mode_where_it_may_fail():
    sides = ({"n": "n", "s": "s"}, {"n": "n", "x": "x"})
    assert goes_by_ansi("l.n - r.n > 5", ROWS.schema, sides)
    assert not goes_by_ansi("l.n > r.n", ROWS.schema, sides)
