"""Functions of Spark's that DuckDB computes with the same meaning and type, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.core.errors import ConfigError
from penstock.expressions import casing, times
from penstock.expressions.casts import cast, whole_steps
from penstock.expressions.kinds import INSTANT, Value

Cast = Callable[[Value, str], Value]
"""What makes a value one of another type."""

_FITTING: dict[str, tuple[str, ...]] = {
    "text": ("string",),
    "shown": ("string", "integer", "boolean", "date", "timestamp", "instant"),
    "number": ("integer", "float", "decimal"),
    "signed": ("integer", "float", "decimal"),
    "double": ("integer", "float", "decimal"),
    "real": ("integer", "float", "decimal"),
    "single": ("float",),
    "count": ("integer",),
    "days": ("integer",),
    "integer": ("integer",),
    "date": ("date", "timestamp", "instant", "string"),
    "time": ("timestamp", "instant", "date", "string"),
    "instant": ("instant",),
    "moment": ("date", "timestamp", "instant"),
}
"""What families an argument may be of, by the words of `Function.given`."""

_AS = {
    "text": "VARCHAR",
    "shown": "VARCHAR",
    "double": "DOUBLE",
    "real": "DOUBLE",
    "single": "FLOAT",
    "count": "INTEGER",
    "days": "INTEGER",
    "date": "DATE",
    "moment": INSTANT,
}
"""What it is cast to, as Spark does; others go in as they are."""

_CLOCKS = ("time", "moment")
"""Words of arguments of which the hour, or a calendar, counts."""

_SIGNED_DIGITS = 34
"""Digits that decimals may have where Spark changes their sign: it rounds the others."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: DuckDB's SQL over its arguments, what these must be, and the type of its results."""

    template: str
    """With ``{0}``, ``{1}``, … for the arguments; ``{all}`` has commas, and ``{joined}`` ||, between all of them.
    ``{kind}`` is the type of the results."""
    given: str
    """A word for each argument. The last may have a ``*``: it stands for any number of them."""
    kind: str | None
    """The type in DuckDB; None if it is that of the first argument."""
    default: str | None = None
    """DuckDB's SQL for the last argument where it is left out."""
    skips_nulls: bool = False
    """Whether it has a value though an argument is NULL."""

    def goes_by_zone(self, values: Sequence[Value]) -> bool:
        """Whether it sees what a clock shows at an instant; casts of its arguments may depend on a zone besides."""
        instants = (value.family == "instant" for value in values)
        return any(word in _CLOCKS and instant for word, instant in zip(self._words(values), instants, strict=False))

    def _words(self, values: Sequence[Value]) -> list[str]:
        words = self.given.split()
        if words and words[-1].endswith("*"):
            words[-1:] = [words[-1][:-1]] * max(1, len(values) - len(words) + 1)
        return words

    def call(self, values: Sequence[Value], cast: Cast = cast) -> Value | None:
        """The function of some values; None if it takes another number of them."""
        words = self._words(values)
        missing = len(words) - len(values)
        if missing != 0 and (missing != 1 or self.default is None):
            return None
        if all(value.kind == "FLOAT" for value in values):
            words = ["single" if word == "real" else word for word in words]
        taken = [
            _taken(word, place, value, cast) for place, (word, value) in enumerate(zip(words, values, strict=False))
        ]
        texts = [value.sql for value in taken] + ([self.default] if missing and self.default is not None else [])
        kind = self.kind or taken[0].kind
        sql = self.template.format(*texts, all=", ".join(texts), joined=" || ".join(texts), kind=kind)
        for place in () if self.skips_nulls else reversed(range(len(taken) - 1)):
            sql = taken[place].before(taken[place + 1], sql)
        return Value(sql, kind)


def _taken(word: str, place: int, value: Value, cast: Cast) -> Value:
    """An argument in the type that it is needed in."""
    if word == "any":
        return value
    if word == "list":
        if value.kind.endswith("[]"):
            return value
    elif value.family == "null":
        return cast(value, _AS.get(word, "DOUBLE" if word in ("number", "signed") else INSTANT))
    elif word == "time" and value.family in ("date", "string"):
        return cast(value, INSTANT)
    elif word == "signed" and value.family == "decimal" and value.digits[0] > _SIGNED_DIGITS:
        raise ConfigError(f"argument {place + 1} is {value.spark_type}. Cast it to at most {_SIGNED_DIGITS} digits.")
    elif value.family in _FITTING[word] and (word != "days" or value.kind != "BIGINT"):
        return cast(value, _AS[word]) if word in _AS else value
    raise ConfigError(f"argument {place + 1} is {value.spark_type}. Cast it to what the function needs.")


def _part(name: str, given: str = "date") -> Function:
    """A part of a date or time, as an integer."""
    return Function(f"CAST({name}({{0}}) AS INTEGER)", given, "INTEGER")


def _math(name: str, template: str = "{name}({{0}})") -> Function:
    return Function(template.format(name=name), "double", "DOUBLE")


_POSITIVE = "CASE WHEN {{0}} <= 0 THEN NULL ELSE {name}({{0}}) END"
_TRIMMED = "{name}({{0}}, {{1}})"
_COUNT = "CASE WHEN {1} < 0 THEN 0 ELSE {1} END"
_PADDED = "CASE WHEN {{2}} = '' THEN left({{0}}, {count}) ELSE {name}({{0}}, {count}, {{2}}) END"

FUNCTIONS: dict[str, Function] = {
    "upper": Function(f"{casing.UPPER}({{0}})", "shown", "VARCHAR"),
    "lower": Function(f"{casing.LOWER}({{0}})", "shown", "VARCHAR"),
    "length": Function("CAST(length({0}) AS INTEGER)", "shown", "INTEGER"),
    "octet_length": Function("CAST(strlen({0}) AS INTEGER)", "shown", "INTEGER"),
    "reverse": Function(
        "CASE WHEN strlen({0}) = length({0}) THEN reverse({0}) "
        "ELSE array_to_string(list_reverse(regexp_extract_all({0}, '(?s).')), '') END",
        "text",
        "VARCHAR",
    ),
    "concat": Function("({joined})", "shown*", "VARCHAR"),
    "concat_ws": Function("concat_ws({all})", "text text*", "VARCHAR", skips_nulls=True),
    "replace": Function("replace({0}, {1}, {2})", "text text text", "VARCHAR", default="''"),
    "repeat": Function("repeat({0}, {1})", "text count", "VARCHAR"),
    "left": Function(f"left({{0}}, {_COUNT})", "text count", "VARCHAR"),
    "right": Function(f"right({{0}}, {_COUNT})", "text count", "VARCHAR"),
    "substring": Function(
        "substring({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END, CASE WHEN {2} < 0 THEN 0 ELSE {2} END)",
        "text count count",
        "VARCHAR",
        default="2147483647",
    ),
    "trim": Function(_TRIMMED.format(name="trim"), "text text", "VARCHAR", default="' '"),
    "ltrim": Function(_TRIMMED.format(name="ltrim"), "text text", "VARCHAR", default="' '"),
    "rtrim": Function(_TRIMMED.format(name="rtrim"), "text text", "VARCHAR", default="' '"),
    "btrim": Function(_TRIMMED.format(name="trim"), "text text", "VARCHAR", default="' '"),
    "lpad": Function(_PADDED.format(name="lpad", count=_COUNT), "text count text", "VARCHAR", default="' '"),
    "rpad": Function(_PADDED.format(name="rpad", count=_COUNT), "text count text", "VARCHAR", default="' '"),
    "startswith": Function("starts_with({0}, {1})", "text text", "BOOLEAN"),
    "endswith": Function("ends_with({0}, {1})", "text text", "BOOLEAN"),
    "contains": Function("contains({0}, {1})", "text text", "BOOLEAN"),
    "instr": Function("CAST(instr({0}, {1}) AS INTEGER)", "text text", "INTEGER"),
    "translate": Function("translate({0}, {1}, {2})", "text text text", "VARCHAR"),
    "md5": Function("md5({0})", "text", "VARCHAR"),
    "isnull": Function("({0} IS NULL)", "any", "BOOLEAN"),
    "isnotnull": Function("({0} IS NOT NULL)", "any", "BOOLEAN"),
    "isnan": Function("coalesce(isnan({0}), FALSE)", "double", "BOOLEAN"),
    "nanvl": Function("CASE WHEN isnan({0}) THEN {1} ELSE {0} END", "real real", None),
    "abs": Function("abs({0})", "signed", None),
    "negative": Function("CAST(-{0} AS {kind})", "signed", None),
    "positive": Function("{0}", "number", None),
    "bitnot": Function("(~{0})", "integer", None),
    "sqrt": Function("CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({0}) END", "double", "DOUBLE"),
    "exp": _math("exp"),
    "ln": _math("ln", _POSITIVE),
    "log10": _math("log10", _POSITIVE),
    "log2": _math("log2", _POSITIVE),
    "pow": Function(
        "CASE WHEN isnan({1}) OR (abs({0}) = 1 AND isinf({1})) THEN CAST('NaN' AS DOUBLE) ELSE pow({0}, {1}) END",
        "double double",
        "DOUBLE",
    ),
    "sign": Function("CASE WHEN isnan({0}) OR {0} = 0 THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END", "double", "DOUBLE"),
    "sin": _math("sin"),
    "cos": _math("cos"),
    "tan": _math("tan"),
    "atan": _math("atan"),
    "atan2": Function("atan2({0} + 0.0, {1} + 0.0)", "double double", "DOUBLE"),
    "degrees": _math("degrees"),
    "radians": _math("radians"),
    "pi": Function("pi()", "", "DOUBLE"),
    "e": Function("exp(1)", "", "DOUBLE"),
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
    "quarter": _part("quarter"),
    "weekofyear": _part("weekofyear"),
    "dayofyear": _part("dayofyear"),
    "dayofweek": Function("CAST(dayofweek({0}) + 1 AS INTEGER)", "date", "INTEGER"),
    "weekday": Function("CAST(isodow({0}) - 1 AS INTEGER)", "date", "INTEGER"),
    "hour": _part("hour", "time"),
    "minute": _part("minute", "time"),
    "second": _part("second", "time"),
    "datediff": Function("CAST({0} - {1} AS INTEGER)", "date date", "INTEGER"),
    "date_add": Function("({0} + {1})", "date days", "DATE"),
    "date_sub": Function("({0} - {1})", "date days", "DATE"),
    "add_months": Function("CAST({0} + to_months({1}) AS DATE)", "date days", "DATE"),
    "last_day": Function("last_day({0})", "date", "DATE"),
    "to_date": Function("{0}", "date", "DATE"),
    "make_date": Function("make_date({0}, {1}, {2})", "count count count", "DATE"),
    "unix_seconds": Function(whole_steps("{0}", 1_000_000), "instant", "BIGINT"),
    "unix_millis": Function(whole_steps("{0}", 1_000), "instant", "BIGINT"),
    "unix_micros": Function("epoch_us({0})", "instant", "BIGINT"),
    "date_from_unix_date": Function("(DATE '1970-01-01' + {0})", "days", "DATE"),
    "timestamp_seconds": Function(f"{times.OF_SECONDS}({{0}})", "integer", INSTANT),
    "size": Function("CAST(len({0}) AS INTEGER)", "list", "INTEGER"),
    "cardinality": Function("CAST(len({0}) AS INTEGER)", "list", "INTEGER"),
    **{f"date_trunc {unit}": Function(f"date_trunc('{unit}', {{0}})", "moment", INSTANT) for unit in (
        "year", "quarter", "month", "week", "day", "hour", "minute", "second"
    )},
    **{f"trunc {unit}": Function(f"CAST(date_trunc('{unit}', {{0}}) AS DATE)", "date", "DATE") for unit in (
        "year", "quarter", "month", "week"
    )},
}  # fmt: skip
"""By their names in Spark; truncations by their units, too."""

_IN_BOTH_MODES = """
    upper lower length octet_length reverse concat concat_ws replace repeat left right substring trim ltrim rtrim btrim
    lpad rpad startswith endswith contains instr translate md5 isnull isnotnull isnan positive bitnot sqrt exp ln log10
    log2 pow sign sin cos tan atan atan2 degrees radians pi e year month day quarter weekofyear dayofyear dayofweek
    weekday hour minute second datediff date_add date_sub add_months last_day to_date unix_seconds unix_millis
    unix_micros date_from_unix_date
"""
"""Functions that give the same where ANSI mode is off, if the casts of their arguments do."""

_IF_NOT_INTEGERS = ("abs", "negative")


def goes_by_ansi(name: str, values: Sequence[Value]) -> bool:
    """Whether a function of `FUNCTIONS` may give something else where Spark's ANSI mode is off."""
    if name in _IF_NOT_INTEGERS:
        return any(value.family == "integer" for value in values)
    return name not in _IN_BOTH_MODES.split() and not name.startswith(("trunc ", "date_trunc "))


_PARSED: dict[type, tuple[str, str]] = {
    exp.Upper: ("upper", "this"),
    exp.Lower: ("lower", "this"),
    exp.Length: ("length", "this"),
    exp.Reverse: ("reverse", "this"),
    exp.Concat: ("concat", "expressions"),
    exp.DPipe: ("concat", "this expression"),
    exp.ConcatWs: ("concat_ws", "expressions"),
    exp.Replace: ("replace", "this expression replacement"),
    exp.Repeat: ("repeat", "this times"),
    exp.Left: ("left", "this expression"),
    exp.Right: ("right", "this expression"),
    exp.Substring: ("substring", "this start length"),
    exp.StartsWith: ("startswith", "this expression"),
    exp.EndsWith: ("endswith", "this expression"),
    exp.Contains: ("contains", "this expression"),
    exp.StrPosition: ("instr", "this substr"),
    exp.Translate: ("translate", "this from_ to"),
    exp.MD5: ("md5", "this"),
    exp.IsNan: ("isnan", "this"),
    exp.Abs: ("abs", "this"),
    exp.Neg: ("negative", "this"),
    exp.Negative: ("negative", "this"),
    exp.BitwiseNot: ("bitnot", "this"),
    exp.Sqrt: ("sqrt", "this"),
    exp.Exp: ("exp", "this"),
    exp.Ln: ("ln", "this"),
    exp.Pow: ("pow", "this expression"),
    exp.Sign: ("sign", "this"),
    exp.Sin: ("sin", "this"),
    exp.Cos: ("cos", "this"),
    exp.Tan: ("tan", "this"),
    exp.Atan: ("atan", "this"),
    exp.Atan2: ("atan2", "this expression"),
    exp.Degrees: ("degrees", "this"),
    exp.Radians: ("radians", "this"),
    exp.Pi: ("pi", ""),
    exp.Year: ("year", "this"),
    exp.Month: ("month", "this"),
    exp.Day: ("day", "this"),
    exp.DayOfMonth: ("day", "this"),
    exp.Quarter: ("quarter", "this"),
    exp.WeekOfYear: ("weekofyear", "this"),
    exp.DayOfYear: ("dayofyear", "this"),
    exp.DayOfWeek: ("dayofweek", "this"),
    exp.Hour: ("hour", "this"),
    exp.Minute: ("minute", "this"),
    exp.Second: ("second", "this"),
    exp.DateDiff: ("datediff", "this expression"),
    exp.AddMonths: ("add_months", "this expression"),
    exp.LastDay: ("last_day", "this"),
    exp.TsOrDsToDate: ("to_date", "this"),
    exp.DateFromUnixDate: ("date_from_unix_date", "this"),
    exp.UnixSeconds: ("unix_seconds", "this"),
    exp.UnixMillis: ("unix_millis", "this"),
    exp.UnixMicros: ("unix_micros", "this"),
    exp.Nanvl: ("nanvl", "this expression"),
    exp.ArraySize: ("size", "this"),
}
"""The name in Spark of what the parser has a class for, and where it keeps the arguments."""

_EXTRACTED = {
    **dict.fromkeys(("YEAR", "YEARS", "Y"), "year"),
    **dict.fromkeys(("MONTH", "MONTHS", "MON"), "month"),
    **dict.fromkeys(("DAY", "DAYS", "D"), "day"),
    **dict.fromkeys(("HOUR", "HOURS", "H"), "hour"),
    **dict.fromkeys(("MINUTE", "MINUTES", "MIN"), "minute"),
    "QUARTER": "quarter",
    "WEEK": "weekofyear",
    "DAYOFWEEK": "dayofweek",
    "DOY": "dayofyear",
}

Call = tuple[str, list[exp.Expression]]
"""A function's name and arguments."""


def call_of(node: exp.Expression) -> Call | None:
    """The call that a parsed expression is, by the name in `FUNCTIONS`; None if it is none, or has other arguments."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "date_part" and len(node.expressions) == 2:
        part, when = node.expressions
        return _EXTRACTED.get(part.name.upper(), ""), [when]
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), node.expressions
    if isinstance(node, exp.Trim):
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
        return name, _given(node, "this expression")
    if isinstance(node, exp.Pad):
        return "lpad" if node.args.get("is_left") else "rpad", _given(node, "this expression fill_pattern")
    if isinstance(node, exp.Log):
        base = node.this.name if isinstance(node.this, exp.Literal) else ""
        return (f"log{base}", [node.expression]) if base in ("2", "10") else None
    if isinstance(node, exp.TsOrDsAdd):
        return ("date_add", [node.this, node.expression]) if node.text("unit").upper() == "DAY" else None
    if isinstance(node, exp.Extract):
        return _EXTRACTED.get(node.this.name.upper(), ""), [node.expression]
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        name = "date_trunc" if isinstance(node, exp.TimestampTrunc) else "trunc"
        return f"{name} {node.text('unit').lower()}", [node.this]
    name, places = _PARSED.get(type(node), ("", ""))
    return None if not name or others_than(node, places) else (name, _given(node, places))


def others_than(node: exp.Expression, places: str) -> bool:
    """Whether something was written for an argument that is not among these."""
    return any(part for place, part in node.args.items() if place not in places.split() and not isinstance(part, bool))


def _given(node: exp.Expression, places: str) -> list[exp.Expression]:
    parts = (node.args.get(place) for place in places.split())
    return [part for some in parts if some is not None for part in (some if isinstance(some, list) else [some])]
