"""The Spark types of every stream, and of users' expressions according to Spark's analyser."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.flow.graph import (
    FetchNode,
    Node,
    OperatorNode,
    SelectNode,
    SourceNode,
    StatementNode,
    UnionNode,
    WhereNode,
    late_columns,
    sources_of,
)
from penstock.spark.types import col, nullable_columns, spark_type


class Schemas:
    """The Spark schema of every stream, asked of Spark's analyser once."""

    def __init__(self) -> None:
        self._known: dict[Node, st.StructType] = {}
        self._types: dict[Node, dict[str, st.DataType]] = {}

    def of(self, node: Node) -> st.StructType:
        """The columns of a stream as Spark types."""
        if node not in self._known:
            self._known[node] = self._derive(node)
        return self._known[node]

    def types_of(self, node: Node) -> dict[str, st.DataType]:
        """The type of each column of a stream; a `StructType` searches all its fields for a name."""
        if node not in self._types:
            self._types[node] = {field.name: field.dataType for field in self.of(node)}
        return self._types[node]

    def late(self, node: Node) -> st.StructType:
        """The columns of a stream's late rows."""
        return st.StructType([st.StructField(f.name, spark_type(f.type)) for f in late_columns(node)])

    def _derive(self, node: Node) -> st.StructType:
        if isinstance(node, SourceNode):
            return nullable_columns(node.data.schema)
        if isinstance(node, SelectNode):
            empty = sources_of(node)[0].data.sparkSession.createDataFrame([], self.of(node.input))
            return nullable_columns(select(empty, node).schema)
        if isinstance(node, OperatorNode):
            return st.StructType(list(self._results(node)))
        if isinstance(node, StatementNode):
            given = {field.name: field for field in self.of(node.input)}
            return st.StructType([given[name] for name in node.columns.names])
        if isinstance(node, FetchNode):
            given = {field.name: field for field in self.of(node.input)}
            return st.StructType([given[name] for name in node.columns.names])
        if isinstance(node, WhereNode | UnionNode):
            return self.of(node.inputs[0])
        raise TypeError(node)

    def _results(self, node: OperatorNode) -> Iterator[st.StructField]:
        """A result keeps the Spark type of the column that it comes from, where the Arrow types agree, too."""
        origins = node.config.origins(node.types)
        for field in node.columns:
            origin = origins.get(field.name)
            alike = origin is not None and node.types[origin.port].columns.field(origin.column).type == field.type
            kind = self.in_port(node, *origin) if origin is not None and alike else spark_type(field.type)
            yield st.StructField(field.name, kind, nullable=True)

    def in_port(self, operator: OperatorNode, port: int, name: str) -> st.DataType:
        """The type of a column inside an operator: keys are cast to what both sides compare as."""
        part = operator.inputs[port]
        if part.columns.field(name).type != operator.types[port].columns.field(name).type:
            return spark_type(operator.types[port].columns.field(name).type)
        return self.types_of(part)[name]


def select(rows: DataFrame, node: SelectNode) -> DataFrame:
    """The columns that a select computes."""
    return rows.select(*expressions(node))


def steps_of(selected: DataFrame) -> set[str]:
    """What Spark's plan of a select does: "Project", "Generate" for explode and the like, "Aggregate", "Window"."""
    plan = selected._jdf.queryExecution().analyzed()
    names = set()
    while plan.children().nonEmpty():
        names.add(str(plan.nodeName()))
        plan = plan.children().head()
    return names


def expressions(node: SelectNode) -> list[Column]:
    """What a select computes."""
    columns: list[Column] = []
    for expression in node.expressions:
        if isinstance(expression, str) and expression.strip() == "*":
            columns += [col(name) for name in node.input.columns.names]
        else:
            columns.append(sf.expr(expression) if isinstance(expression, str) else expression)
    return columns
