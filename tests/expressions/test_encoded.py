"""Texts that are encoded by a dictionary, as scans of files deliver them, mean in expressions what plain ones mean."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.core.errors import FlowError
from penstock.expressions import evaluate
from penstock.expressions.evaluate import _tree
from penstock.expressions.view import View
from tests.expressions.cases import BEHIND_NULLS, CASES, FAILING, ROWS

pytestmark = pytest.mark.slow

TEXTS = {field.name for field in ROWS.schema if field.type in (pa.string(), pa.binary())} | {"st"}

OTHERS = {"s": "A1c", "u": "Abc", "e": "1_2"}
TURNED = pa.table(
    [pa.array([OTHERS[name], None]) if name in OTHERS else ROWS.column(name) for name in ROWS.schema.names], ROWS.schema
)
"""The rows with other texts, so that a code stands for one text here and for another there."""

MANY = 1050
"""Copies of the rows, of which expressions are computed once for all that have the same texts."""


def of_texts(expression: str) -> bool:
    """Whether an expression names a column with texts."""
    return any(str(node.name) in TEXTS for node in _tree(expression).walk())


def encoded(column: pa.Array, *, first: bool) -> pa.Array:
    """A column with its texts encoded, by a dictionary that begins or ends with a text that is in no row."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [encoded(column.field(place), first=first) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=column.is_null())
    if kind not in (pa.string(), pa.binary()):
        return column
    held, other = column.dictionary_encode(), pa.array(["in no row"]).cast(kind)
    if not first:
        return pa.DictionaryArray.from_arrays(held.indices, pa.concat_arrays([held.dictionary, other]))
    codes = pc.add(held.indices, pa.scalar(1, pa.int32()))
    return pa.DictionaryArray.from_arrays(codes, pa.concat_arrays([other, held.dictionary]))


def as_scanned(rows: pa.Table) -> pa.Table:
    """Rows in two chunks whose dictionaries differ."""
    whole = rows.combine_chunks().to_batches()[0]
    parts = (whole.slice(0, rows.num_rows // 2), whole.slice(rows.num_rows // 2))
    columns = [
        pa.chunked_array([encoded(part.column(place), first=not n) for n, part in enumerate(parts)])
        for place in range(rows.num_columns)
    ]
    return pa.table(columns, names=rows.column_names)


def shown(rows: pa.Table) -> list[str]:
    """Columns and their types as text, in which NaN is NaN."""
    return [f"{column.type} {column.to_pylist()}" for column in rows.columns]


@pytest.mark.parametrize("copies", [1, MANY])
def test_values_are_those_of_plain_texts(copies):
    rows = pa.concat_tables([ROWS, TURNED] * copies)
    held = as_scanned(rows)
    assert pa.types.is_dictionary(held.schema.field("s").type)
    assert pa.types.is_dictionary(held.schema.field("st").type.field("c").type)
    expressions = [case.expression for case in CASES + BEHIND_NULLS if of_texts(case.expression)]
    assert len(expressions) > 180
    asked = [f"{text} AS r{place}" for place, text in enumerate(expressions)]
    expected = shown(evaluate.select(rows, asked))
    found = shown(evaluate.selected(View.of(held, rows.schema), asked).table())
    assert [each for each in zip(expressions, found, expected, strict=True) if each[1] != each[2]] == []


def test_conditions_keep_the_rows_that_they_keep_of_plain_texts():
    rows = pa.concat_tables([ROWS, TURNED] * MANY)
    held = as_scanned(rows)
    conditions = [case.expression for case in CASES if case.kind == "bool" and of_texts(case.expression)]
    assert len(conditions) > 40
    shown_too = ["t", *sorted(TEXTS)]
    for condition in conditions:
        kept = evaluate.held(View.of(held, rows.schema), condition).table()
        assert kept.schema == rows.schema
        assert kept.select(shown_too) == evaluate.where(rows, condition).select(shown_too), condition


@pytest.mark.parametrize("expression", [text for text in FAILING if of_texts(text)])
def test_what_has_no_value_is_an_error_too(expression):
    with pytest.raises(FlowError, match="has no value for some row"):
        evaluate.selected(View.of(as_scanned(ROWS), ROWS.schema), [f"{expression} AS r"]).table()
