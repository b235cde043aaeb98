"""Casts of Spark 4 (ANSI) in DuckDB: what cannot be cast is an error, and a digit too much is cut off, not rounded."""

from __future__ import annotations

from penstock.core.errors import ConfigError
from penstock.expressions import casing, times
from penstock.expressions.kinds import INSTANT, INTEGERS, Family, Value, decimal, literal

_SPACE = r"[\x00-\x20]*"
_WHOLE = rf"^{times.BLANK}[+-]?[0-9]+{times.BLANK}$"
_NUMBER = rf"^{_SPACE}[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?{_SPACE}$"
_DIGITS = _NUMBER.replace("([eE][+-]?[0-9]+)?", "")
_SMALL = _NUMBER.replace("([eE][+-]?[0-9]+)?", "[eE][+-]?[0-9]{1,2}")
_OTHER = _NUMBER.replace("[0-9]", r"\p{Nd}")
_HEX = rf"^{_SPACE}[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?{_SPACE}$"
_FLOAT = _NUMBER.replace(f"{_SPACE}$", f"[dDfF]?{_SPACE}$")
_NOT_NUMBERS = {
    "nan": "NaN",
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}
_EXACT = {"FLOAT": 7, "DOUBLE": 15}
"""Digits that a floating point number always holds: DuckDB rounds twice where a decimal has more."""

_SHOWN = 15
"""Digits before the point up to which every Java shows a double as DuckDB does: Java 17 shows some more of others."""

_WITHOUT_EXPONENT = "without_exponent"

MACROS = rf"""
    CREATE MACRO point_moved(digits, place) AS CASE
        WHEN place <= 0 THEN '0.' || repeat('0', -place) || digits
        ELSE rpad(left(digits, place), CAST(place AS INTEGER), '0') || '.' || substring(digits, place + 1)
    END;
    CREATE MACRO {_WITHOUT_EXPONENT}(x) AS CASE
        WHEN regexp_matches(x, '[eE]') THEN regexp_extract(x, '^-') || point_moved(
            regexp_replace(x, '[eE].*|[^0-9]', '', 'g'),
            length(regexp_extract(x, '^[+-]?([0-9]*)', 1)) + TRY_CAST(regexp_extract(x, '[eE](.*)$', 1) AS INTEGER)
        )
        ELSE x
    END;
"""
"""SQL that makes known to a DuckDB what writes a number out. It reads those with an exponent into decimals of too few
digits, and does not read some that would fit."""

_READ = {"date": times.DAY, "timestamp": times.MOMENT, "instant": times.INSTANT}
_WRITTEN = {
    "date": f"{times.DAY_TEXT}({{}})",
    "timestamp": f"{times.MOMENT_TEXT}({{}})",
    "instant": f"{times.MOMENT_TEXT}({{}} AT TIME ZONE 'UTC')",
}


def cast(value: Value, to: str, *, safe: bool = False) -> Value:
    """A value as DuckDB's type `to`; with `safe`, NULL where Spark's try_cast gives it, else an error."""
    if value.kind == to:
        return value
    if value.of is not None and to == "DOUBLE":
        return cast(value.of, to)
    sql = _cast(value, to, "NULL" if safe else None)
    if sql is None:
        raise ConfigError(
            f"A cast from {value.spark_type} to {Value('', to).spark_type} would differ from Spark in process, or "
            f"Spark rejects it. {_instead(value, to)}"
        )
    sure = value.sure and (to == "VARCHAR" or widened([value.kind, to]) == to)
    # What names no column Spark computes step by step before it leaves out the FLOAT.
    of = value if value.family == "integer" and to == "FLOAT" and '"' in value.sql else None
    return Value(sql, to, sure=sure, of=of)


def goes_by_zone(value: Value, to: str) -> bool:
    """Whether a cast depends on the time zone of the session.

    >>> goes_by_zone(Value("d", "DATE"), "TIMESTAMP WITH TIME ZONE"), goes_by_zone(Value("d", "DATE"), "TIMESTAMP")
    (True, False)
    """
    families = {value.family, Value("", to).family}
    return "instant" in families and not families.isdisjoint(("string", "date", "timestamp"))


def goes_by_ansi(value: Value, to: str) -> bool:
    """Whether a cast may have another result where ANSI mode is off, as one that can fail has. Sure are those listed.

    >>> goes_by_ansi(Value("n", "BIGINT"), "INTEGER"), goes_by_ansi(Value("n", "INTEGER"), "BIGINT")
    (True, False)
    """
    family, target = value.family, Value("", to).family
    if value.kind == to or family == "null":
        return False
    if {family, target} <= {"integer", "decimal"} and family in ("integer", "decimal"):
        return not _fits(value, to)
    return target not in _ANYWAY.get(family, ())


_ANYWAY: dict[Family, tuple[Family, ...]] = {
    "boolean": ("integer", "float", "string"),
    "integer": ("float", "boolean", "string"),
    "float": ("float", "boolean", "string"),
    "decimal": ("float", "boolean"),  # As text, small ones have an exponent without it.
    "string": ("binary",),
    "date": ("timestamp", "instant", "string"),
    "timestamp": ("date", "instant", "string"),
    "instant": ("date", "timestamp", "string"),
}
"""Casts that give the same in both modes, besides those from number to wider number."""


def _fits(value: Value, to: str) -> bool:
    """Whether every whole number or decimal of a type, or the number that is written, has its digits in another."""
    target = Value("", to)
    if value.family == target.family == "integer":
        return INTEGERS[value.kind] <= INTEGERS[to]
    if target.family == "integer":
        return False
    (digits, scale), (room, places) = value.digits, target.digits
    return scale <= places and digits - scale <= room - places


def error(message: str, value: str | None = None) -> str:
    """What raises an error in DuckDB: a message, in which ``{}`` stands for a value."""
    text = literal(message)
    if value is None:
        return f"error({text})"
    return "error(" + text.replace("{}", f"' || CAST({value} AS VARCHAR) || '") + ")"


def _instead(value: Value, to: str) -> str:
    target = Value("", to).family
    if value.family == "decimal" and target == "integer":
        return "Cast it to bigint before, like cast(cast(x AS bigint) AS int)."
    if value.family == "float" and target == "decimal":
        return f"Take a decimal of at most {_SHOWN} digits before the point, like decimal(19, 4)."
    if value.family == "float":
        return "Cast it to a decimal before, like cast(x AS decimal(19, 4))."
    return "Compute the column before flow.source(…)."


def _cast(value: Value, to: str, otherwise: str | None) -> str | None:
    """DuckDB's SQL of a cast; None if there is none with the same meaning."""
    family, target, sql = value.family, Value("", to).family, value.sql
    verb = "CAST" if otherwise is None else "TRY_CAST"
    plain = f"{verb}({sql} AS {to})"
    if family == "null":
        return plain
    if family == "string":
        return _from_text(value, to, otherwise)
    same = {
        "boolean": {"integer"},
        "integer": {"integer", "boolean"},
        "float": {"integer", "decimal", "float", "boolean"},
        "decimal": {"integer", "decimal", "boolean"},
        "string": {"integer", "decimal", "boolean", "date", "timestamp"},
        "date": {"timestamp", "instant"},
        "timestamp": {"date", "instant"},
        "instant": {"date", "timestamp"},
    }
    if target == "integer" and family in ("float", "decimal"):
        if family == "decimal" and to != "BIGINT" and value.digits[1] and value.digits[0] > _EXACT["DOUBLE"]:
            return None  # by way of a double, in Spark, or not: that depends on how the value was made
        return f"{verb}(trunc({sql}) AS {to})"
    if target == "decimal" and family == "boolean":
        return f"{verb}(CAST({sql} AS INTEGER) AS {to})"  # DuckDB takes true for the smallest decimal
    if target == "decimal" and family == "float":
        # By the digits that are shown of a double: DuckDB would round the binary fraction.
        digits, scale = Value("", to).digits
        return _to_decimal(sql, to, otherwise) if digits - scale <= _SHOWN else None
    if target == "float" and family == "decimal" and value.digits[0] > _EXACT[to]:
        return f"CAST(CAST({sql} AS VARCHAR) AS {to})"
    if value.kind == "DOUBLE" and to == "FLOAT":
        return f"coalesce(TRY_CAST({sql} AS FLOAT), CAST(sign({sql}) * CAST('Infinity' AS DOUBLE) AS FLOAT))"
    if target == "boolean" and family in ("float", "decimal"):
        return f"({sql} <> 0)"
    if target == "string" and family in _WRITTEN:
        return _WRITTEN[family].format(sql)
    if target == "string" and family == "decimal" and value.digits[0] == value.digits[1]:
        return rf"regexp_replace(CAST({sql} AS VARCHAR), '^(-?)\.', '\10.')"
    if family == "instant" and (target == "integer" or to == "DOUBLE"):
        exact = f"epoch_us({sql}) / 1000000.0"
        return f"{verb}({whole_steps(sql, 1_000_000)} AS {to})" if target == "integer" else f"CAST({exact} AS DOUBLE)"
    if family == "integer" and to == INSTANT:
        return f"{times.OF_SECONDS}({sql})"
    return plain if family in same.get(target, ()) else None


def _to_decimal(sql: str, to: str, otherwise: str | None) -> str:
    """A floating point number as a decimal. DuckDB does not see that one with an exponent has too many digits."""
    digits, scale = Value("", to).digits
    wider = decimal(digits + 1, scale) if digits == scale else None
    shown = f"CAST(CAST({sql} AS DOUBLE) AS VARCHAR)"
    shown = f"CAST({shown} AS {wider})" if wider else shown
    fits = f"{'CAST' if otherwise is None else 'TRY_CAST'}({shown} AS {to})"
    wrong = otherwise or error(f"{{}} has more digits than a {to}. try_cast gives NULL instead", sql)
    return f"CASE WHEN abs({sql}) < 1e{digits - scale} THEN {fits} WHEN isfinite({sql}) THEN {wrong} END"


def whole_steps(instant: str, step: int) -> str:
    """How many steps of so many microseconds an instant is past 1970, rounded down, by integers alone."""
    since = f"epoch_us({instant})"
    return f"(({since} - (({since} % {step}) + {step}) % {step}) // {step})"


def _from_text(value: Value, to: str, otherwise: str | None) -> str | None:
    """A text, read as Spark reads it: DuckDB reads more than Spark in some places and less in others."""
    text, target = value.sql, Value("", to).family
    wrong = otherwise or error(
        f"'{{}}' cannot be read as {Value('', to).spark_type}. try_cast gives NULL instead", text
    )
    verb = "CAST" if otherwise is None else "TRY_CAST"
    blank = _SPACE if target == "float" else times.BLANK
    bare = rf"regexp_replace({text}, '^{blank}|{blank}$', '', 'g')"
    read = f"{verb}({bare} AS {to})"

    def if_like(*patterns_and_values: str) -> str:
        pairs = zip(patterns_and_values[::2], patterns_and_values[1::2], strict=True)
        whens = " ".join(f"WHEN regexp_matches({text}, '{pattern}') THEN {then}" for pattern, then in pairs)
        return f"CASE WHEN {text} IS NULL THEN NULL {whens} ELSE {wrong} END"

    if target == "integer":
        return if_like(_WHOLE, read)
    if target == "decimal":
        read = f"coalesce(TRY_CAST({bare} AS {to}), {wrong})"
        moved = f"coalesce(TRY_CAST({_WITHOUT_EXPONENT}({bare}) AS {to}), {wrong})"
        unread = error("'{}' is not read in process: write its digits from 0 to 9 and with a small exponent", text)
        return if_like(_DIGITS, read, _SMALL, moved, _NUMBER, unread, _OTHER, unread)
    if target == "float":
        others = " ".join(f"WHEN '{name}' THEN CAST('{meant}' AS {to})" for name, meant in _NOT_NUMBERS.items())
        read = f"{verb}(regexp_replace({bare}, '[dDfF]$', '') AS {to})"
        unread = error("'{}' is not read in process: write it with decimal digits", text)
        return f"CASE {casing.LOWER}({bare}) {others} ELSE {if_like(_FLOAT, read, _HEX, unread)} END"
    if target == "boolean":
        words = {"t": 1, "true": 1, "y": 1, "yes": 1, "1": 1, "f": 0, "false": 0, "n": 0, "no": 0, "0": 0}
        cases = " ".join(f"WHEN '{word}' THEN {bool(truth)}" for word, truth in words.items())
        return f"CASE WHEN {text} IS NULL THEN NULL ELSE CASE {casing.LOWER}({bare}) {cases} ELSE {wrong} END END"
    if target in _READ:
        return f"CASE WHEN {text} IS NOT NULL THEN coalesce({_READ[target]}({text}), {wrong}) END"
    return f"encode({text})" if to == "BLOB" else None


def widened(kinds: list[str]) -> str | None:
    """The type that Spark gives values of some types where one of them comes out; None if there is none in process.

    >>> widened(["INTEGER", "BIGINT"]), widened(["INTEGER", "FLOAT"]), widened(["INTEGER", "VARCHAR"])
    ('BIGINT', 'DOUBLE', None)
    >>> widened(["DECIMAL(4,1)", "INTEGER"])
    'DECIMAL(11,1)'
    """
    if len(set(kinds)) == 1:
        return kinds[0]
    if all(kind in INTEGERS for kind in kinds):
        return max(kinds, key=lambda kind: INTEGERS[kind])
    families = {Value("", kind).family for kind in kinds}
    if families <= {"integer", "decimal"}:
        digits = [Value("", kind).digits for kind in kinds]
        scale = max(s for _, s in digits)
        return decimal(max(p - s for p, s in digits) + scale, scale)
    if families <= {"integer", "decimal", "float"}:
        return "DOUBLE"
    if families <= {"date", "timestamp", "instant"}:
        return INSTANT if "instant" in families else "TIMESTAMP"
    return None
