"""Spark SQL expressions as DuckDB SQL of the same meaning and type, that of Spark 4 (ANSI).

DuckDB gives many of the same words other meanings. So nothing is passed to it as written: each supported operator and
function has its own translation, and everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isinf

from sqlglot import exp

from penstock.core.errors import ConfigError
from penstock.expressions import casing
from penstock.expressions.casts import cast, error, goes_by_zone, widened
from penstock.expressions.casts import goes_by_ansi as cast_goes_by_ansi
from penstock.expressions.functions import FUNCTIONS, call_of, goes_by_ansi, others_than
from penstock.expressions.kinds import INSTANT, INTEGERS, Value, check_condition, decimal, literal, quoted
from penstock.expressions.patterns import Pattern, pattern
from penstock.sql.dialect import SUFFIX, WRITTEN

TypeOf = Callable[[str], str]
"""The type of an expression of DuckDB's."""

_LONGEST = 200_000
"""Characters of SQL at most: what guards a part against errors repeats it, and may do so at every level."""

_INSTEAD = "Compute the column before flow.source(…), or run the flow on Spark."

_UNSIGNED = {"UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(20,0)"}
"""The types in which Spark would hold numbers without a sign."""

_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_OF_NULLS = (exp.NullSafeEQ, exp.NullSafeNEQ)
_COMPARING = (*_COMPARISONS, exp.Between, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Is)
_OF_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.DPipe)
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_BITWISE = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}
_CHOICES = {exp.Coalesce: "coalesce", exp.Greatest: "greatest", exp.Least: "least"}

_CASTS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "bigint": "BIGINT", "float": "FLOAT"}
"""Functions that are casts; the parser knows others."""

_NUMBERS = ("integer", "float", "decimal")
"""Families to compute with."""

_DAYS = ("DAY", "WEEK", "MONTH", "YEAR")
_A_DAY = {"HOUR": 24, "MINUTE": 1440, "SECOND": 86_400, "MILLISECOND": 86_400_000, "MICROSECOND": 86_400_000_000}
"""Units of lengths of time, and how many of the short ones are a day."""

_WITH_OFFSET = re.compile(r":\d+(?:\.\d*)?\s*(?:Z|UTC|GMT|[+-]\d{1,2}(?::\d{1,2})?)\s*$")
"""How a text ends that says its zone."""

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_LARGEST = {"FLOAT": 3.4028234663852886e38, "DOUBLE": 1.7976931348623157e308}
"""How wide integers are, and the largest numbers of other types."""

_TYPES = {
    exp.DataType.Type.BOOLEAN: "BOOLEAN",
    exp.DataType.Type.TINYINT: "TINYINT",
    exp.DataType.Type.SMALLINT: "SMALLINT",
    exp.DataType.Type.INT: "INTEGER",
    exp.DataType.Type.BIGINT: "BIGINT",
    exp.DataType.Type.FLOAT: "FLOAT",
    exp.DataType.Type.DOUBLE: "DOUBLE",
    exp.DataType.Type.TEXT: "VARCHAR",
    exp.DataType.Type.BINARY: "BLOB",
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.TIMESTAMP: INSTANT,
    exp.DataType.Type.TIMESTAMPTZ: INSTANT,
    exp.DataType.Type.TIMESTAMPLTZ: INSTANT,
    exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP",
}


def in_duckdb(tree: exp.Expression, type_of: TypeOf) -> Value:
    """How DuckDB computes what `tree`, over columns that it knows, is in Spark."""
    meaning = Meaning(type_of)
    return replace(meaning.of(tree), by_zone=meaning.by_zone, by_ansi=meaning.by_ansi)


def typed_literals(tree: exp.Expression) -> Iterator[tuple[str, str]]:
    """Dates and timestamps that are written as such (``DATE'2024-01-31'``), and how DuckDB reads their texts."""
    for node in tree.find_all(exp.Cast):
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            to = _TYPES.get(node.to.this, "")
            if Value("", to).family in ("date", "timestamp", "instant"):
                yield _written(node), cast(Value(literal(node.this.this), "VARCHAR"), to).sql


class Meaning:
    """Translates expressions over columns whose types DuckDB knows."""

    def __init__(self, type_of: TypeOf) -> None:
        self._type_of = type_of
        self.by_zone = False
        """Whether something that was translated goes by the time zone of the session."""
        self.by_ansi = False
        """Whether something that was translated may be another value where ANSI mode is off."""

    def of(self, node: exp.Expression) -> Value:
        """What a part of an expression is in DuckDB."""
        value = self._of(node)
        if len(value.sql) > _LONGEST:
            raise ConfigError(
                f"{_written(node)[:60]}… is nested too deeply. Compute parts of it in an earlier .select(…)."
            )
        return value

    def _of(self, node: exp.Expression) -> Value:
        if isinstance(node, exp.Window | exp.AggFunc):
            raise ConfigError(
                f"{_written(node)} is computed from several rows, but an expression computes a value from one row. "
                f"Aggregate over windows instead: .window(range=…).agg(total=pk.sum('amount'))."
            )
        if isinstance(node, exp.UDTF):
            raise ConfigError(
                f"{_written(node)} turns one row into several, but an expression computes one value. Do that before "
                f"flow.source(…)."
            )
        self._check_precedence(node)
        rule = _RULES.get(type(node))
        if rule is not None:
            self.by_ansi |= not isinstance(node, _IN_BOTH_MODES)
            return rule(self, node)
        return self._called(node)

    def _check_precedence(self, node: exp.Expression) -> None:
        """Refuse operators side by side that Spark puts together in another order than the parser does."""
        alike = _COMPARING if isinstance(node, _COMPARING) else _OF_BITS if isinstance(node, _OF_BITS) else ()
        for place in ("this", "expression", "low", "high"):
            part = node.args.get(place)
            if (
                isinstance(part, exp.Paren)
                and WRITTEN not in part.meta
                and not isinstance(part.this, tuple(_COMPARISONS))
            ):
                part = part.this
            within = isinstance(part, alike) and (alike is _COMPARING or type(part) is not type(node))
            negated = alike is _COMPARING and isinstance(part, exp.Not)
            added = isinstance(node, exp.DPipe) and place == "expression" and isinstance(part, exp.Add | exp.Sub)
            if within or negated or added:
                raise ConfigError(
                    f"{_written(node)} combines operators that Spark parses in another order, or rejects. "
                    f"Write ({_written(part)})."
                )

    def _called(self, node: exp.Expression) -> Value:
        name, parts = call_of(node) or ("", [])
        if name in _CASTS and len(parts) == 1:
            return self._as(self.of(parts[0]), _CASTS[name])
        if name not in FUNCTIONS:
            raise _unknown(node)
        values = [self.of(part) for part in parts]
        try:
            found = FUNCTIONS[name].call(values, self._as)
        except ConfigError as refused:
            raise ConfigError(f"{_written(node)}: {refused}") from None
        self.by_zone |= FUNCTIONS[name].goes_by_zone(values)
        self.by_ansi |= goes_by_ansi(name, values)
        if found is None:
            raise ConfigError(f"{_written(node)} has arguments that are not supported in process. {_INSTEAD}")
        return found

    def _as(self, value: Value, to: str, *, safe: bool = False) -> Value:
        """A value of another type."""
        self.by_zone |= goes_by_zone(value, to)
        return self._cast_as(value, to, safe=safe)

    def _cast_as(self, value: Value, to: str, *, safe: bool = False) -> Value:
        self.by_ansi |= not safe and cast_goes_by_ansi(value, to)
        return cast(value, to, safe=safe)

    def _widened(self, kinds: list[str]) -> str | None:
        """The type that values of some types have in common. Without ANSI mode, a FLOAT and an integer are FLOATs."""
        self.by_ansi |= "FLOAT" in kinds and not {*kinds} <= {"FLOAT", "DOUBLE"}
        return widened(kinds)

    def _typed(self, sql: str) -> Value:
        return Value(sql, self._type_of(sql))

    def _column(self, node: exp.Expression) -> Value:
        found = replace(self._typed(node.sql(dialect="duckdb")), sure=isinstance(node, exp.Column))
        if found.kind.startswith("ENUM"):
            return Value(f"CAST({found.sql} AS VARCHAR)", "VARCHAR", sure=True)
        if found.kind.startswith("TIMESTAMP_"):
            return Value(f"CAST({found.sql} AS TIMESTAMP)", "TIMESTAMP")
        if found.kind in _UNSIGNED:
            return Value(f"CAST({found.sql} AS {_UNSIGNED[found.kind]})", _UNSIGNED[found.kind], sure=True)
        return found

    def _literal(self, node: exp.Literal) -> Value:
        return self._text(node) if node.is_string else _number(node.this)

    def _text(self, node: exp.Literal | exp.RawString) -> Value:
        return Value(literal(node.this), "VARCHAR", sure=True)

    def _boolean(self, node: exp.Boolean) -> Value:
        return Value("TRUE" if node.this else "FALSE", "BOOLEAN", sure=True)

    def _null(self, node: exp.Null) -> Value:
        return Value("NULL", '"NULL"', sure=True)

    def _paren(self, node: exp.Paren) -> Value:
        inner = self.of(node.this)
        return inner if inner.number else replace(inner, sql=f"({inner.sql})")

    def _negative(self, node: exp.Expression) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.this}")
        if SUFFIX in node.this.meta:
            return _suffixed(node.this, "-")
        return self._called(node)

    def _arithmetic(self, node: exp.Binary) -> Value:
        sign = _ARITHMETIC[type(node)]
        if isinstance(node.expression, exp.Interval) or isinstance(node.this, exp.Interval):
            return self._moved(node, sign)
        a, b = self.of(node.this), self.of(node.expression)
        if b.family == "date" and sign == "+":
            a, b = b, a
        if a.family == "date" and b.kind in ("TINYINT", "SMALLINT", "INTEGER") and sign != "*":
            return Value(a.before(b, f"({a.sql} {sign} {b.sql})"), "DATE")
        if a.family == b.family == "date" and sign == "-":
            raise _unknown(node, "Write datediff(…, …) for the days between two dates.")
        if "null" in (a.family, b.family):
            a, b = (
                self._as(value, other.kind) if value.family == "null" else value for value, other in ((a, b), (b, a))
            )
        if {a.family, b.family} <= {"integer", "decimal"} and "decimal" in (a.family, b.family):
            return self._decimals(node, a, b, sign)
        kind = self._widened([a.kind, b.kind])
        if kind is None:
            raise self._mixed(node, a, b)
        if not {a.family, b.family} <= {*_NUMBERS}:
            raise self._not_numbers(node, a)
        a, b = self._as(a, kind), self._as(b, kind)
        self.by_ansi |= a.family == "integer"
        return Value(a.before(b, f"({a.sql} {sign} {b.sql})"), kind)

    def _decimals(self, node: exp.Binary, a: Value, b: Value, sign: str) -> Value:
        """Decimals in the digits that Spark gives results."""
        (p, s), (q, t) = a.digits, b.digits
        if sign == "*":
            kind = decimal(p + q + 1, s + t)
        else:
            scale = max(s, t)
            kind = decimal(max(p - s, q - t) + scale + 1, scale)
        if kind is None:
            raise ConfigError(
                f"{_written(node)} has more than 38 digits, which Spark would round. Cast its sides to fewer digits, "
                f"or to DOUBLE."
            )
        if sign == "*":
            # Of narrow decimals DuckDB makes a product of 18 digits at most.
            a, b = (self._as(value, f"DECIMAL({max(n, 19)},{m})") for value, (n, m) in ((a, (p, s)), (b, (q, t))))
        else:
            a, b = self._as(a, kind), self._as(b, kind)
        return Value(a.before(b, f"CAST({a.sql} {sign} {b.sql} AS {kind})"), kind)

    def _moved(self, node: exp.Binary, sign: str) -> Value:
        """A date or timestamp, some days or hours away."""
        when, by = node.this, node.expression
        if isinstance(when, exp.Interval):
            when, by = by, when
        value, unit = self.of(when), by.args.get("unit")
        count, length = by.this.name, unit.name.upper().rstrip("S") if isinstance(unit, exp.Var) else ""
        if not re.fullmatch(r"-?\d+", count) or length not in (*_DAYS, *_A_DAY):
            raise _unknown(by, "Write a number and a unit, as in INTERVAL 3 DAYS.")
        lasts = value.family in ("timestamp", "instant") or (value.family == "date" and length in _DAYS)
        if sign == "*" or (sign == "-" and when is node.expression) or not lasts:
            raise _unknown(node)
        # Spark moves an instant by whole days of the calendar, also where they are written as hours.
        self.by_zone |= value.family == "instant" and (length in _DAYS or abs(int(count)) >= _A_DAY[length])
        moved = f"({value.sql} {sign} INTERVAL '{count}' {length})"
        return Value(f"CAST({moved} AS DATE)", "DATE") if value.family == "date" else Value(moved, value.kind)

    def _divided(self, node: exp.Binary) -> Value:
        a, b = self._numeric(node.this, node), self._numeric(node.expression, node)
        if "decimal" in (a.family, b.family) and "float" not in (a.family, b.family):
            raise ConfigError(
                f"{_written(node)} divides decimals, and Spark's rules for the digits of the result are not supported "
                f"in process. Cast one side to DOUBLE."
            )
        self._by_divisor(b)
        a, b = self._as(a, "DOUBLE"), self._as(b, "DOUBLE")
        return self._unless_zero(node, a, b, f"({a.sql} / {b.sql})", "DOUBLE")

    def _remainder(self, node: exp.Binary) -> Value:
        a, b = self._numeric(node.this, node), self._numeric(node.expression, node)
        kind = self._widened([a.kind, b.kind])
        if kind is None or "decimal" in (a.family, b.family):
            raise _unknown(node, "Cast both sides to DOUBLE.")
        self._by_divisor(b)
        a, b = self._as(a, kind), self._as(b, kind)
        result = f"({a.sql} % {b.sql})"
        if kind in INTEGERS and not b.number:
            # DuckDB divides the smallest integer by -1 to find that there is no remainder, which overflows.
            result = f"CASE WHEN {b.sql} = -1 THEN {a.sql} & 0 ELSE {result} END"
        elif b.number == "-1":
            result = f"({a.sql} & 0)"
        return self._unless_zero(node, a, b, result, kind)

    def _whole_part(self, node: exp.Binary) -> Value:
        a, b = self._integer(node.this, node), self._integer(node.expression, node)
        self._by_divisor(b)
        a, b = self._as(a, "BIGINT"), self._as(b, "BIGINT")
        return self._unless_zero(node, a, b, f"({a.sql} // {b.sql})", "BIGINT")

    def _by_divisor(self, value: Value) -> None:
        """Whether a division may be by zero, or overflow: it cannot by most numbers that are written."""
        self.by_ansi |= not value.number or float(value.number) in (0, -1)

    def _unless_zero(self, node: exp.Expression, a: Value, b: Value, result: str, kind: str) -> Value:
        wrong = error(f"{_written(node)} divides by zero. try_divide gives NULL on Spark; here, divide by nullif(…, 0)")
        zero = f"{b.sql} = 0 AND {a.sql} IS NOT NULL"
        # The only operators of which Spark computes the right side first.
        return Value(b.before(a, f"CASE WHEN {zero} THEN {wrong} WHEN {b.sql} <> 0 THEN {result} END"), kind)

    def _bitwise(self, node: exp.Binary) -> Value:
        a, b = self._alike(node, [self._integer(part, node) for part in (node.this, node.expression)])
        kind = a.kind
        if isinstance(node, exp.BitwiseXor):
            return Value(a.before(b, f"xor({a.sql}, {b.sql})"), kind)
        return Value(a.before(b, f"({a.sql} {_BITWISE[type(node)]} {b.sql})"), kind)

    def _compared(self, node: exp.Binary) -> Value:
        a, b = self._comparable(node, [self.of(node.this), self.of(node.expression)])
        result = f"({a.sql} {_COMPARISONS[type(node)]} {b.sql})"
        return Value(result if type(node) in _OF_NULLS else a.before(b, result), "BOOLEAN")

    def _between(self, node: exp.Between) -> Value:
        value, low, high = (self.of(node.args[name]) for name in ("this", "low", "high"))
        (a, low), (b, high) = self._comparable(node, [value, low]), self._comparable(node, [value, high])
        first, second = a.before(low, f"{a.sql} >= {low.sql}"), b.before(high, f"{b.sql} <= {high.sql}")
        both = f"({first} AND {second})"
        return Value(both if b.sure and high.sure else f"CASE WHEN NOT ({first}) THEN FALSE ELSE {both} END", "BOOLEAN")

    def _in(self, node: exp.In) -> Value:
        if others_than(node, "this expressions"):
            raise _unknown(node)
        value, *among = self._comparable(node, [self.of(part) for part in (node.this, *node.expressions)])
        result = f"({value.sql} IN ({', '.join(part.sql for part in among)}))"
        return Value(next((value.before(part, result) for part in among if not part.sure), result), "BOOLEAN")

    def _and(self, node: exp.And) -> Value:
        """A part is computed only where those before it leave the result open: elsewhere it may be an error."""
        parts = [self._condition(part) for part in node.flatten()]
        whens = " ".join(f"WHEN NOT {part} THEN FALSE" for part in parts)
        return Value(f"CASE {whens} ELSE {' AND '.join(parts)} END", "BOOLEAN")

    def _or(self, node: exp.Or) -> Value:
        parts = [self._condition(part) for part in node.flatten()]
        whens = " ".join(f"WHEN {part} THEN TRUE" for part in parts)
        return Value(f"CASE {whens} ELSE {' OR '.join(parts)} END", "BOOLEAN")

    def _not(self, node: exp.Not) -> Value:
        return Value(f"(NOT {self._condition(node.this)})", "BOOLEAN")

    def _is(self, node: exp.Is) -> Value:
        what = node.expression
        if isinstance(what, exp.Null):
            return Value(f"({self.of(node.this).sql} IS NULL)", "BOOLEAN")
        if isinstance(what, exp.Boolean):
            return Value(f"({self._condition(node.this)} IS {self._boolean(what).sql})", "BOOLEAN")
        raise _unknown(node)

    def _like(self, node: exp.Binary) -> Value:
        return self._matched(node, "\\")

    def _escaped(self, node: exp.Escape) -> Value:
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise _unknown(node)
        return self._matched(node.this, node.expression.name)

    def _matched(self, node: exp.Binary, escape: str) -> Value:
        if isinstance(node.expression, exp.Any | exp.All):
            raise _unknown(node, "Write one LIKE for each pattern.")
        text, pattern = (self._as_text(part) for part in (node.this, node.expression))
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        if isinstance(node, exp.ILike):
            text, pattern = (replace(value, sql=f"{casing.LOWER}({value.sql})") for value in (text, pattern))
        found = f"{text.sql} {word} {pattern.sql}"
        if not (isinstance(node.expression, exp.Literal) and escape not in node.expression.this):
            escaped = literal(rf"(?s)(?:[^\x{{{ord(escape):x}}}]|\x{{{ord(escape):x}}}[\x{{{ord(escape):x}}}_%])*")
            wrong = error(f"'{{}}' is no pattern: {escape} stands before a letter, or at the end", pattern.sql)
            sound = f"regexp_full_match({pattern.sql}, {escaped})"
            found = f"CASE WHEN {sound} THEN {found} ESCAPE {literal(escape)} ELSE {wrong} END"
        return Value(text.before(pattern, f"({found})"), "BOOLEAN")

    def _case(self, node: exp.Case) -> Value:
        ifs, default = node.args["ifs"], node.args.get("default")
        results = [self.of(part.args["true"]) for part in ifs] + ([self.of(default)] if default is not None else [])
        results = self._alike(node, results)
        if node.this is None:
            conditions = [self._condition(part.this, may_be_null=False) for part in ifs]
        else:
            subject = self.of(node.this)
            pairs = [self._comparable(node, [subject, self.of(part.this)]) for part in ifs]
            conditions = [a.before(b, f"{a.sql} = {b.sql}") for a, b in pairs]
        whens = " ".join(f"WHEN {c} THEN {r.sql}" for c, r in zip(conditions, results, strict=False))
        ends = f" ELSE {results[-1].sql}" if default is not None else ""
        return Value(f"CASE {whens}{ends} END", results[0].kind)

    def _if(self, node: exp.If) -> Value:
        results = [self.of(part) for part in (node.args["true"], node.args.get("false")) if part is not None]
        first, *rest = self._alike(node, results)
        ends = f" ELSE {rest[0].sql}" if rest else ""
        return Value(f"CASE WHEN {self._condition(node.this)} THEN {first.sql}{ends} END", first.kind)

    def _chosen(self, node: exp.Func) -> Value:
        if not (node.expressions or isinstance(node, exp.Coalesce)):
            raise ConfigError(f"{_written(node)} compares one value with nothing. Write two or more.")
        parts = self._alike(node, [self.of(part) for part in (node.this, *node.expressions)])
        return Value(f"{_CHOICES[type(node)]}({', '.join(part.sql for part in parts)})", parts[0].kind)

    def _nvl2(self, node: exp.Nvl2) -> Value:
        given = self.of(node.this)
        first, second = self._alike(node, [self.of(node.args["true"]), self.of(node.args["false"])])
        return Value(f"CASE WHEN {given.sql} IS NOT NULL THEN {first.sql} ELSE {second.sql} END", first.kind)

    def _nullif(self, node: exp.Nullif) -> Value:
        given = self.of(node.this)
        a, b = self._comparable(node, [given, self.of(node.expression)])
        same = a.before(b, f"{a.sql} = {b.sql}")
        return Value(f"CASE WHEN {same} THEN NULL ELSE {given.sql} END", given.kind)

    def _cast(self, node: exp.Cast) -> Value:
        if SUFFIX in node.meta:
            return _suffixed(node)
        safe = bool(node.args.get("safe"))
        kind = node.to
        if kind.this == exp.DataType.Type.DECIMAL:
            digits = [int(part.name) for part in kind.expressions]
            to = decimal(*(digits + [10, 0][len(digits) :]))
        else:
            to = None if kind.expressions else _TYPES.get(kind.this)
        if to is None or node.args.get("format") is not None:
            raise _unknown(node)
        try:
            if isinstance(node.this, exp.Literal) and _WITH_OFFSET.search(node.this.this):
                return self._cast_as(self.of(node.this), to, safe=safe)
            return self._as(self.of(node.this), to, safe=safe)
        except ConfigError as refused:
            raise ConfigError(f"{_written(node)}: {refused}") from None

    def _array(self, node: exp.Array) -> Value:
        if not node.expressions:
            raise _unknown(node, "Write at least one element.")
        parts = self._alike(node, [self.of(part) for part in node.expressions])
        return Value(f"[{', '.join(part.sql for part in parts)}]", f"{parts[0].kind}[]")

    def _struct(self, node: exp.Struct) -> Value:
        fields = []
        for part in node.expressions:
            if isinstance(part, exp.PropertyEQ):
                name, value = part.this.name, self.of(part.expression)
            elif isinstance(part, exp.Column | exp.Alias):
                name, value = part.alias_or_name, self.of(part.this if isinstance(part, exp.Alias) else part)
            else:
                raise ConfigError(f"{_written(part)} needs a name in a struct. Write named_struct('name', …).")
            fields.append(f"{quoted(name)}: {value.sql}")
        return self._typed(f"{{{', '.join(fields)}}}")

    def _element(self, node: exp.Bracket) -> Value:
        """An element of a list. What is not there is an error, as in Spark."""
        given = self.of(node.this)
        if not given.kind.endswith("[]") or len(node.expressions) != 1:
            raise _unknown(node)
        place = self.of(node.expressions[0])
        if place.family != "integer":
            raise self._mixed(node, given, place)
        count = f"len({given.sql})"
        if node.args.get("offset"):  # element_at counts from 1, and from the end
            index = place.sql
            there = f"abs({index}) BETWEEN 1 AND {count}"
        else:
            index = f"{place.sql} + 1"
            there = f"{index} BETWEEN 1 AND {count}"
        wrong = error(f"{_written(node)} is not there: the list is shorter")
        if node.args.get("safe"):
            wrong = f"CASE WHEN {index} = 0 THEN {wrong} END"  # the place before the first is an error even so
        guard = f"WHEN {given.sql} IS NULL THEN NULL WHEN {place.sql} IS NULL THEN NULL"
        found = f"CASE {guard} WHEN {there} THEN {given.sql}[{index}] ELSE {wrong} END"
        return Value(found, given.kind.removesuffix("[]"))

    def _floored(self, node: exp.Func) -> Value:
        name = "floor" if isinstance(node, exp.Floor) else "ceil"
        if node.args.get("decimals") is not None:
            raise _unknown(node)
        value = self._numeric(node.this, node)
        if value.family == "integer":
            return self._as(value, "BIGINT")
        if value.family == "decimal":
            digits, scale = value.digits
            kind = decimal(digits - scale + (1 if scale else 0), 0) or value.kind
            return Value(f"CAST({name}({value.sql}) AS {kind})", kind)
        whole = f"CAST({name}({value.sql}) AS BIGINT)"
        return Value(f"CASE WHEN isnan({value.sql}) THEN 0 ELSE {whole} END", "BIGINT")  # as a cast in Java

    def _rounded(self, node: exp.Round) -> Value:
        """Half up, by the digits that are shown of a number and not by its binary fraction."""
        value, places = self._numeric(node.this, node), node.args.get("decimals")
        count = self.of(places).number if places is not None else "0"
        if not re.fullmatch(r"\d+", count):
            raise _unknown(node, "Write how many digits to keep, as a number.")
        keep = int(count)
        if value.family == "integer":
            return value
        if value.family == "decimal":
            digits, scale = value.digits
            kept = min(keep, scale)
            kind = decimal(digits - scale + kept + 1, kept) or value.kind
            return Value(f"CAST({value.sql} AS {kind})", kind)
        if value.kind == "FLOAT" or keep > 15:
            raise _unknown(node, "Round a DOUBLE to at most 15 digits.")
        shown = f"CAST(CAST({value.sql} AS VARCHAR) AS DECIMAL(38,20))"
        rounded = f"CAST(CAST(CAST({shown} AS DECIMAL(38,{keep})) AS VARCHAR) AS DOUBLE)"
        return Value(f"CASE WHEN abs({value.sql}) < 1e17 THEN {rounded} ELSE {value.sql} END", "DOUBLE")

    def _replaced(self, node: exp.RegexpReplace) -> Value:
        """All places that match. Spark and DuckDB name groups differently in what comes there."""
        new = node.args.get("replacement")
        others = others_than(node, "this expression replacement")
        if others or not isinstance(new, exp.Literal) or set(new.this) & {"$", "\\"}:
            raise _unknown(node, "Write three arguments, the last a text without $ and \\.")
        text, sought, by = self._as_text(node.this), self._pattern(node), self._as_text(new)
        if sought.may_be_empty:
            raise _unknown(node, "Write a pattern that matches one letter at least, as in 'a+' instead of 'a*'.")
        return Value(sought.guarded(text.sql, f"regexp_replace({text.sql}, {sought.sql}, {by.sql}, 'g')"), "VARCHAR")

    def _rlike(self, node: exp.RegexpLike) -> Value:
        if others_than(node, "this expression"):
            raise _unknown(node)
        text = self._as_text(node.this)
        if isinstance(node.expression, exp.Null):
            return Value("NULL::BOOLEAN", "BOOLEAN")
        sought = self._pattern(node)
        return Value(sought.guarded(text.sql, f"regexp_matches({text.sql}, {sought.sql})"), "BOOLEAN")

    def _pattern(self, node: exp.Expression) -> Pattern:
        """The second argument of a function, a regular expression."""
        given = node.expression
        if not (isinstance(given, exp.RawString) or (isinstance(given, exp.Literal) and given.is_string)):
            raise _unknown(node, "Write the pattern as a text.")
        try:
            return pattern(given.this)
        except ConfigError as refused:
            raise ConfigError(f"{_written(node)}: {refused}. {_INSTEAD}") from None

    def _found(self, node: exp.RegexpExtract) -> Value:
        """The part that a group of a pattern matched; empty if none did."""
        group = node.args.get("group")
        number = "1" if group is None else self.of(group).number
        if others_than(node, "this expression group") or not re.fullmatch(r"\d", number):
            raise _unknown(node, "Write which group, as a number.")
        text, sought = self._as_text(node.this), self._pattern(node)
        if int(number) > sought.groups:
            raise ConfigError(f"{_written(node)}: the pattern has no group {number}. It has {sought.groups}.")
        return Value(sought.guarded(text.sql, f"regexp_extract({text.sql}, {sought.sql}, {number})"), "VARCHAR")

    def _numeric(self, part: exp.Expression, node: exp.Expression) -> Value:
        value = self.of(part)
        if value.family not in _NUMBERS:
            raise self._not_numbers(node, value)
        return value

    def _integer(self, part: exp.Expression, node: exp.Expression) -> Value:
        value = self.of(part)
        if value.family != "integer":
            raise self._not_numbers(node, value, "an integer, like cast(… AS BIGINT)")
        return value

    def _not_numbers(
        self, node: exp.Expression, value: Value, needed: str = "a number, like cast(… AS DOUBLE)"
    ) -> ConfigError:
        return ConfigError(f"{_written(node)} computes with {value.spark_type}. Cast it to {needed}.")

    def _condition(self, part: exp.Expression, *, may_be_null: bool = True) -> str:
        value = self.of(part)
        if value.family == "null" and not may_be_null:
            raise ConfigError(f"{_written(part)} is not a condition: Spark rejects NULL after WHEN. Leave it out.")
        check_condition(value, _written(part))
        return f"({value.sql})"

    def _as_text(self, part: exp.Expression) -> Value:
        return self._as(self.of(part), "VARCHAR")

    def _comparable(self, node: exp.Expression, values: Sequence[Value]) -> list[Value]:
        """Values as one type by which Spark compares them."""
        kinds = _kinds_of(values)
        if len(kinds) <= 1:
            return list(values)
        kind = self._widened(kinds)
        if kind is None and "VARCHAR" in kinds and len(kinds) == 2:
            other = next(kind for kind in kinds if kind != "VARCHAR")
            kind = "BIGINT" if other in INTEGERS else other if Value("", other).family in _READ else None
        return self._all_as(kind, node, values)

    def _alike(self, node: exp.Expression, values: Sequence[Value]) -> list[Value]:
        """Values as the type of which one of them comes out."""
        kinds = _kinds_of(values)
        return self._all_as(self._widened(kinds) if kinds else '"NULL"', node, values)

    def _all_as(self, kind: str | None, node: exp.Expression, values: Sequence[Value]) -> list[Value]:
        if kind is None:
            raise self._mixed(node, *(Value("", kind) for kind in _kinds_of(values)[:2]))
        return [self._as(value, kind) for value in values]

    def _mixed(self, node: exp.Expression, a: Value, b: Value) -> ConfigError:
        return ConfigError(
            f"{_written(node)} mixes {a.spark_type} and {b.spark_type}. Cast one to the other's type, like "
            f"cast(… AS {b.spark_type})."
        )


_READ = ("float", "date", "timestamp", "instant", "boolean")
"""What a text is read as if it is compared with one."""

_Rule = Callable[[Meaning, exp.Expression], Value]

_RULES: dict[type, _Rule] = {
    exp.Column: Meaning._column,
    exp.Dot: Meaning._column,
    exp.Literal: Meaning._literal,
    exp.RawString: Meaning._text,
    exp.Boolean: Meaning._boolean,
    exp.Null: Meaning._null,
    exp.Paren: Meaning._paren,
    exp.Neg: Meaning._negative,
    exp.Negative: Meaning._negative,
    **dict.fromkeys(_ARITHMETIC, Meaning._arithmetic),
    exp.Div: Meaning._divided,
    exp.Mod: Meaning._remainder,
    exp.IntDiv: Meaning._whole_part,
    **dict.fromkeys([*_BITWISE, exp.BitwiseXor], Meaning._bitwise),
    **dict.fromkeys(_COMPARISONS, Meaning._compared),
    exp.Between: Meaning._between,
    exp.In: Meaning._in,
    exp.And: Meaning._and,
    exp.Or: Meaning._or,
    exp.Not: Meaning._not,
    exp.Is: Meaning._is,
    exp.Like: Meaning._like,
    exp.ILike: Meaning._like,
    exp.Escape: Meaning._escaped,
    exp.Case: Meaning._case,
    exp.If: Meaning._if,
    **dict.fromkeys(_CHOICES, Meaning._chosen),
    exp.Nvl2: Meaning._nvl2,
    exp.Nullif: Meaning._nullif,
    exp.Cast: Meaning._cast,
    exp.TryCast: Meaning._cast,
    exp.Array: Meaning._array,
    exp.Struct: Meaning._struct,
    exp.Bracket: Meaning._element,
    exp.Floor: Meaning._floored,
    exp.Ceil: Meaning._floored,
    exp.Round: Meaning._rounded,
    exp.RegexpReplace: Meaning._replaced,
    exp.RegexpExtract: Meaning._found,
    exp.RegexpLike: Meaning._rlike,
}

_IN_BOTH_MODES = (
    exp.Column,
    exp.Dot,
    exp.Literal,
    exp.RawString,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.Neg,
    exp.Negative,
    *_ARITHMETIC,
    exp.Div,
    exp.Mod,
    exp.IntDiv,
    *_BITWISE,
    exp.BitwiseXor,
    *_COMPARISONS,
    exp.Between,
    exp.In,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.Like,
    exp.ILike,
    exp.Escape,
    exp.Case,
    exp.If,
    *_CHOICES,
    exp.Nvl2,
    exp.Nullif,
    exp.Cast,
    exp.TryCast,
    exp.Array,
    exp.Struct,
    exp.RegexpReplace,
    exp.RegexpExtract,
    exp.RegexpLike,
)
"""What means the same with ANSI mode and without, if its parts do and unless its rule says otherwise."""


def _number(text: str) -> Value:
    """A number as written, of the type that Spark gives it."""
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        kind = next((kind for kind, bits in (("INTEGER", 31), ("BIGINT", 63)) if -(2**bits) <= number < 2**bits), None)
        kind = kind or decimal(len(text.lstrip("-")), 0)
    elif re.fullmatch(r"-?\d*\.\d*", text):
        whole, _, fraction = text.lstrip("-").partition(".")
        kind = decimal(max(len((whole + fraction).lstrip("0")), len(fraction), 1), len(fraction))
    elif isinf(float(text)):
        raise ConfigError(f"{text} is out of range for DOUBLE. Write cast('inf' AS DOUBLE) for infinity.")
    else:
        return Value(f"CAST('{text}' AS DOUBLE)", "DOUBLE", sure=True)
    if kind is None:
        raise ConfigError(f"{text} has more than 38 digits. Write it as a double: {text}D.")
    return Value(f"CAST({text} AS {kind})", kind, number=text, sure=True)


def _suffixed(node: exp.Cast, sign: str = "") -> Value:
    """A number whose type is written behind it, as in ``100S``."""
    digits, suffix = f"{sign}{node.this.name}", str(node.meta[SUFFIX])
    if suffix.upper() == "BD":
        kind = decimal(len(digits.lstrip("-0")) or 1, 0)
        if kind is None or not re.fullmatch(r"-?[\d.]+", digits):
            raise ConfigError(f"{digits}{suffix} is not supported in process. Write it without exponent and suffix.")
        return _number(digits) if "." in digits else Value(f"CAST({digits} AS {kind})", kind, sure=True)
    kind = _TYPES[node.to.this]
    if kind in INTEGERS:
        fits = -(2 ** (_BITS[kind] - 1)) <= int(digits) < 2 ** (_BITS[kind] - 1)
    else:
        fits = abs(float(digits)) <= _LARGEST[kind]
    if not fits:
        raise ConfigError(f"{digits}{suffix} is out of range for {Value('', kind).spark_type}.")
    if kind in INTEGERS:
        return Value(f"CAST({digits} AS {kind})", kind, number=digits, sure=True)
    return Value(f"CAST('{digits}' AS {kind})", kind, sure=True)


def _kinds_of(values: Sequence[Value]) -> list[str]:
    return list(dict.fromkeys(value.kind for value in values if value.family != "null"))


def _unknown(node: exp.Expression, instead: str = _INSTEAD) -> ConfigError:
    return ConfigError(f"{_written(node)} is not supported in process. {instead}")


def _written(node: exp.Expression) -> str:
    """A part of an expression, as Spark writes it."""
    return str(node.sql(dialect="spark"))
