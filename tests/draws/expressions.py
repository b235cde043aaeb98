"""Expressions at random: trees over every operator and function known in process, and rows with values that are easily
got wrong.

An expression is well-typed by the families of its parts; widths, digits and parentheses are left to chance, so that
coercion and precedence are drawn, too. The functions whose last digit is not Spark's to decide stand only at the root.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache
from math import copysign, isclose
from typing import Any

import pyarrow as pa

from penstock.core.errors import ConfigError, FlowError
from penstock.expressions import evaluate
from tests.expressions.cases import kind_of

TOGETHER = 50
"""Draws in a row that share their rows, and their time zone."""

_ROWS = 10
_NAN, _INF = float("nan"), float("inf")
_EPOCH = dt.datetime(1970, 1, 1)

ZONES = ("Asia/Kolkata", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Monrovia")
"""Zones with half hours, with summer time on either side of the equator, and with an offset of seconds before 1972."""

ALL = ["boolean", "boolean", "integer", "integer", "float", "decimal", "text", "text", "date", "instant", "plain_time"]
OF_TIMES = ["boolean", "integer", "text", "date", "instant", "instant", "instant", "plain_time"]
"""Families of which an expression is drawn, as often as they are named."""

INEXACT = ("exp", "ln", "log2", "log10", "sin", "cos", "tan", "atan", "degrees", "radians")
"""Functions whose last digit may differ; `pow` and `atan2`, which take two arguments, are the others."""


@dataclass(frozen=True)
class Drawn:
    """An expression over columns of `rows`, and the zone of the session that it is computed in."""

    seed: str
    expression: str
    rows: pa.Table
    zone: str

    def __str__(self) -> str:
        return f"--draw={self.seed}: {self.expression}"


def draw_expression(seed: str, zones: Sequence[str] = ("UTC",)) -> Drawn:
    """The expression of a seed like ``fixed/123``; the same seed draws the same."""
    name, _, number = seed.rpartition("/")
    group = f"{name}/rows/{int(number) // TOGETHER}"
    families = ALL if zones == ("UTC",) else OF_TIMES
    return Drawn(seed, _Tree(random.Random(seed), families).root(), _rows(group), random.Random(group).choice(zones))


@cache
def _rows(seed: str) -> pa.Table:
    rng = random.Random(seed)

    def column(kind: pa.DataType, value: Callable[[], Any]) -> pa.Array:
        return pa.array([None if rng.random() < 0.12 else value() for _ in range(_ROWS)], kind)

    def integers(bits: int) -> pa.Array:
        edges = [0, 1, -1, 2, 7, 10, 100, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
        return column(getattr(pa, f"int{bits}")(), lambda: _either(rng, edges, lambda: _integer(rng, bits)))

    def decimals(digits: int, scale: int) -> pa.Array:
        most = 10**digits - 1
        some = [0, 1, -1, most, -most, 5, 15, 25, -5, 10**scale, 10**scale * 5 // 2]
        edges = [number for number in some if abs(number) <= most]
        return column(
            pa.decimal128(digits, scale),
            lambda: Decimal(_either(rng, edges, lambda: _up_to(rng, most))).scaleb(-scale, _WIDE),
        )

    def floats(kind: pa.DataType) -> pa.Array:
        return column(kind, lambda: _float(rng))

    def moments(kind: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.12 else _moment(rng) for _ in range(_ROWS)], pa.int64()).cast(kind)

    def days() -> pa.Array:
        return pa.array([None if rng.random() < 0.12 else _day(rng) for _ in range(_ROWS)], pa.int32()).cast(
            pa.date32()
        )

    digits = rng.randint(1, 38)
    columns: dict[str, pa.Array] = {
        "b": column(pa.bool_(), lambda: rng.random() < 0.5),
        "b2": column(pa.bool_(), lambda: rng.random() < 0.5),
        "y": integers(8),
        "h": integers(16),
        "i": integers(32),
        "j": column(pa.int32(), lambda: rng.randint(-9, 9)),
        "n": integers(64),
        "k": column(pa.int64(), lambda: rng.randint(-9, 9)),
        "f": floats(pa.float32()),
        "x": floats(pa.float64()),
        "z": column(pa.float64(), lambda: rng.choice([0.0, -0.0, 1.0, -1.5, 2.5, 0.1, rng.uniform(-99, 99)])),
        "m": decimals(4, 1),
        "m2": decimals(12, 4),
        "m3": decimals(digits, rng.randint(0, digits)),
        "m38": decimals(38, 10),
        "s": column(pa.string(), lambda: _text(rng)),
        "u": column(pa.string(), lambda: _text(rng)),
        "num": column(pa.string(), lambda: _number_text(rng)),
        "when_text": column(pa.string(), lambda: _time_text(rng)),
        "d": days(),
        "d2": days(),
        "ts": moments(pa.timestamp("us", "UTC")),
        "ts2": moments(pa.timestamp("us", "UTC")),
        "nt": moments(pa.timestamp("us")),
        "bin": column(pa.binary(), lambda: rng.choice([b"", b"\0", b"\xff", b"ab", "ä".encode()])),
        "l": column(
            pa.list_(pa.int32()), lambda: [rng.choice([None, 0, 1, -5, 2**31 - 1]) for _ in range(rng.randint(0, 3))]
        ),
    }
    columns["st"] = pa.StructArray.from_arrays(
        [integers(32), column(pa.string(), lambda: _text(rng)), moments(pa.timestamp("us", "UTC"))],
        names=["a", "c", "at"],
        mask=pa.array([rng.random() < 0.12 for _ in range(_ROWS)]),
    )
    return pa.table(columns)


_WIDE = Context(prec=60)


def _either(rng: random.Random, edges: Sequence[Any], otherwise: Callable[[], Any]) -> Any:
    return rng.choice(edges) if rng.random() < 0.6 else otherwise()


def _integer(rng: random.Random, bits: int) -> int:
    return rng.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) >> rng.randrange(bits)


def _up_to(rng: random.Random, most: int) -> int:
    return rng.randint(-most, most) // 10 ** rng.randrange(len(str(most)))


def _float(rng: random.Random) -> float:
    edges = [0.0, -0.0, _NAN, _INF, -_INF, 0.1, 1.0, -2.5, 0.5, 1e-320, 1e300, 3.4e38, 2.0**53, 1e17, 2.0**63, -1e10]
    return float(_either(rng, edges, lambda: rng.uniform(-1, 1) * 10.0 ** rng.randint(-10, 20)))


_DAYS = [0, -1, 1, 19783, 19782, -719162, -719163, 2932896, 2932897, 11016, -141714, 18321, 4000000, -1500000]
"""1970 and around it, 29 February, the first and last day of four-digit years and past them, the Gregorian change."""

_MOMENTS = [
    *(0, -1, 1, -500_000, 1_706_695_872_345_678, 951_782_400_000_000),
    *(1_710_054_000_000_000, 1_710_053_999_999_999, 1_730_613_600_000_000, 1_730_610_000_000_000),
    *(1_711_846_800_000_000, 1_729_990_800_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999),
    *(253_402_300_800_000_000, -12_219_292_800_000_000, -62_167_219_200_000_001),
]
"""The same for microseconds, and moments at which clocks change in New York and Berlin."""


def _day(rng: random.Random) -> int:
    return int(_either(rng, _DAYS, lambda: rng.randint(-30_000, 60_000)))


def _moment(rng: random.Random) -> int:
    step = rng.choice([1, 10**6])
    return int(_either(rng, _MOMENTS, lambda: rng.randint(-2 * 10**15, 4 * 10**15) // step * step))


_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "Abc",
    "abc",
    "ä",
    "Größe",
    "日本",
    "😀",
    "e\u0301",
    "a%b",
    "a_b",
    "a\\b",
    "it's",
    "ß",
    "İ",
]
_TEXTS += [" x ", "\t", "a\nb", "true", "no", "ΑΣ", "aaa", "null", "0", "-0", "x1y2"]


def _text(rng: random.Random) -> str:
    return str(
        _either(rng, _TEXTS, lambda: "".join(rng.choice("abcABC ä%_1.\u00e9ß") for _ in range(rng.randint(0, 8))))
    )


def _number_text(rng: random.Random) -> str:
    edges = [
        "1",
        "-1",
        " 12 ",
        "1.5",
        "1e3",
        "-0",
        "NaN",
        "inf",
        "-Infinity",
        "",
        ".5",
        "5.",
        "+7",
        "128",
        "99999999999",
    ]
    edges += ["1_0", "0x1", "1d", "12.345", "-0.005", "9223372036854775808", "1e-3", "0.5", "2.5"]
    return str(_either(rng, edges, lambda: str(rng.choice([rng.randint(-999, 999), round(rng.uniform(-99, 99), 3)]))))


def _time_text(rng: random.Random) -> str:
    edges = ["2024-01-31", "2024-1-5", "2024-02-30", "2024", "2024-02", "1970-01-01 00:00:00", "2024-03-10 02:30:00"]
    edges += ["2024-01-31T10:11:12.5Z", "2024-01-31 10:11:12+05:30", "0001-01-01", "9999-12-31 23:59:59.999999", ""]
    edges += [
        "+10000-01-01",
        "2024-01-31 24:00:00",
        "2024-01-31 1:2:3",
        "-0001-01-01",
        "1582-10-10",
        "x",
        "2024-11-03 01:30",
    ]

    def usual() -> str:
        when = _EPOCH + dt.timedelta(microseconds=rng.randint(-2 * 10**15, 4 * 10**15))
        return str(when) if rng.random() < 0.5 else str(when.date())

    return str(_either(rng, edges, usual))


def quoted(text: str) -> str:
    """A text as Spark SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"


_FLOATS = [
    "1.5D",
    "0.0D",
    "-0.0D",
    "1e3",
    "2.675D",
    "-1e-5",
    "1e17",
    "1e300",
    "0.5F",
    "100D",
    "double('NaN')",
    "float('-inf')",
]
_PARTS_OF_DAYS = ["year", "month", "day", "dayofmonth", "quarter", "weekofyear", "dayofyear", "weekday", "dayofweek"]
_EXTRACTED = ["year", "month", "day", "hour", "minute", "quarter", "week", "doy", "dayofweek"]
_OF_A_TEXT = ["upper", "lower", "ucase", "lcase", "trim", "ltrim", "rtrim", "btrim", "reverse", "md5"]
_SOUGHT = ["[ab]", "^a", "b+", "(a|b)c?", "ä", "."]


class _Tree:
    """Draws an expression: a method for each family of types, whose lists of choices are all there is."""

    def __init__(self, rng: random.Random, families: Sequence[str]) -> None:
        self._rng = rng
        self._families = families

    def root(self) -> str:
        depth = self._rng.choice([1, 1, 2, 2, 3])
        if self._rng.random() < 0.08:
            return self._inexact(depth)
        return self.of(self._family(), depth)

    def of(self, family: str, depth: int) -> str:
        """An expression of a family, of some depth at most."""
        if self._rng.random() < 0.02 and family != "list":
            return "null"
        if depth <= 0 or self._rng.random() < 0.1:
            return self._leaf(family)
        if self._rng.random() < 0.15:
            return self._chosen(family, depth - 1)
        made = str(getattr(self, f"_{family}")(depth - 1))
        return f"({made})" if self._rng.random() < 0.8 else made

    def _family(self) -> str:
        return self._pick(*self._families)

    def _pick(self, *choices: str) -> str:
        return self._rng.choice(choices)

    def _inexact(self, depth: int) -> str:
        def number() -> str:
            return self.of(self._pick("integer", "float", "decimal"), depth - 1)

        if self._rng.random() < 0.3:
            return f"{self._pick('pow', 'atan2')}({number()}, {number()})"
        return f"{self._pick(*INEXACT)}({number()})"

    def _leaf(self, family: str) -> str:
        columns = {
            "boolean": ("b", "b2"),
            "integer": ("y", "h", "i", "j", "n", "k", "st.a"),
            "float": ("f", "x", "z"),
            "decimal": ("m", "m2", "m3", "m38"),
            "text": ("s", "u", "num", "when_text", "st.c"),
            "date": ("d", "d2"),
            "instant": ("ts", "ts2", "st.at"),
            "plain_time": ("nt",),
            "binary": ("bin",),
            "list": ("l",),
        }
        if self._rng.random() < 0.7 or family in ("list",):
            return self._pick(*columns[family])
        return self._literal(family)

    def _literal(self, family: str) -> str:
        rng = self._rng
        if family == "boolean":
            return self._pick("true", "false")
        if family == "integer":
            number = rng.choice(
                [0, 1, 2, 3, -1, -3, 7, 10, 100, 127, -128, 255, 32767, 2**31 - 1, -(2**31), 2**31, 2**63 - 1]
            )
            suffixes = [suffix for suffix, bits in (("Y", 7), ("S", 15), ("L", 63)) if -(2**bits) < number < 2**bits]
            return f"{number}{rng.choice(['', '', *suffixes])}"
        if family == "float":
            return self._pick(*_FLOATS)
        if family == "decimal":
            return self._pick(
                "1.5", "0.05", "2.0", "-0.5", "100.00", "99999999999999999999", "0.000001", "0.0", "12.345"
            )
        if family == "text":
            make = rng.choice([_text, _text, _number_text, _time_text])
            return quoted(make(rng))
        if family == "binary":
            return self._pick("x'6162'", "x''", "x'ff'")
        day = self._pick(
            "2024-02-29", "1970-01-01", "1969-12-31", "2024-03-10", "9999-12-31", "0001-01-01", "1900-01-01"
        )
        if family == "date":
            return f"date'{day}'"
        time = self._pick("00:00:00", "02:30:00", "23:59:59.999999", "07:00:00", "12:00:00.5")
        if family == "instant":
            return f"timestamp'{day} {time}{self._pick('', '', 'Z', '+05:30')}'"
        return f"timestamp_ntz'{day} {time}'"

    def _number(self, depth: int) -> str:
        return self.of(self._pick("integer", "integer", "float", "decimal"), depth)

    def _chosen(self, family: str, depth: int) -> str:
        """What gives one of several values."""

        def one() -> str:
            near = {"integer": ("integer", "decimal", "float"), "decimal": ("decimal", "integer")}
            near |= {"date": ("date", "instant"), "instant": ("instant", "date", "plain_time")}
            drawn = self._pick(*near.get(family, (family,))) if self._rng.random() < 0.2 else family
            return self.of(drawn, depth)

        if family == "list":
            return f"if({self.of('boolean', depth)}, {one()}, {one()})"
        forms: list[Callable[[], str]] = [
            lambda: f"case when {self.of('boolean', depth)} then {one()} else {one()} end",
            lambda: f"case when {self.of('boolean', depth)} then {one()} when {self.of('boolean', 0)} then {one()} end",
            lambda: f"case {self._number(0)} when {self._number(0)} then {one()} else {one()} end",
            lambda: f"if({self.of('boolean', depth)}, {one()}, {one()})",
            lambda: f"{self._pick('coalesce', 'nvl', 'ifnull')}({one()}, {one()})",
            lambda: f"coalesce({one()}, {one()}, {one()})",
            lambda: f"nvl2({self.of(self._family(), depth)}, {one()}, {one()})",
            lambda: f"nullif({one()}, {one()})",
            lambda: f"{self._pick('greatest', 'least')}({one()}, {one()})",
            lambda: f"greatest({one()}, {one()}, {one()})",
        ]
        return self._rng.choice(forms)()

    def _boolean(self, depth: int) -> str:
        def compared() -> tuple[str, str]:
            family = self._family()
            other = family
            if self._rng.random() < 0.3:
                near = {"integer": ("float", "decimal", "text"), "float": ("integer", "decimal", "text")}
                near |= {"decimal": ("integer", "float"), "text": ("integer", "date", "instant", "boolean", "float")}
                near |= dict.fromkeys(("date", "instant", "plain_time"), ("date", "instant", "plain_time", "text"))
                other = self._pick(*near.get(family, (family,)))
            return self.of(family, depth), self.of(other, depth)

        def three() -> str:
            a, b = compared()
            return f"{a} {self._pick('', 'not ')}between {b} and {compared_like(a)}"

        def compared_like(a: str) -> str:
            return a if self._rng.random() < 0.3 else self._number(0)

        def among() -> str:
            family = self._family()
            few = ", ".join(self.of(family, self._rng.choice([0, 0, depth])) for _ in range(self._rng.randint(1, 3)))
            return f"{self.of(family, depth)} {self._pick('', 'not ')}in ({few})"

        def like() -> str:
            patterns = ["a%", "%b", "_", "%", "", "a\\_b", "%\\%%", "A_c", "%ä%", "a\\\\b", "ß", "%ς", "i_", "_\u0301"]
            escape = ""
            pattern = quoted(self._rng.choice(patterns))
            if self._rng.random() < 0.1:
                pattern = self._pick("u", "concat('%', st.c)")
            elif self._rng.random() < 0.1:
                pattern, escape = "'a!_%'", " escape '!'"
            word = f"{self._pick('', 'not ')}{self._pick('like', 'like', 'ilike')}"
            return f"{self.of('text', depth)} {word} {pattern}{escape}"

        def matched() -> str:
            pattern = self._pick(
                "^a", "b$", "[a-c]+", "\\\\d", "a.c", "(a|b)x?", "^$", "(?i)abc", "\\\\s", "\\\\w+", "ä"
            )
            return f"{self.of('text', depth)} rlike '{pattern}'"

        forms: list[Callable[[], str]] = [
            *[lambda: f" {self._pick('=', '<>', '<', '<=', '>', '>=', '<=>', '==', '!=')} ".join(compared())] * 6,
            *[lambda: f"{self.of('boolean', depth)} {self._pick('and', 'or')} {self.of('boolean', depth)}"] * 3,
            lambda: f"{self._pick('not', '!')} {self.of('boolean', depth)}",
            three,
            three,
            among,
            among,
            like,
            like,
            matched,
            lambda: f"{self.of(self._family(), depth)} is {self._pick('', 'not ')}null",
            lambda: f"{self.of('boolean', depth)} is {self._pick('', 'not ')}{self._pick('true', 'false')}",
            lambda: f"{self._pick('isnull', 'isnotnull')}({self.of(self._family(), depth)})",
            lambda: f"isnan({self._number(depth)})",
            lambda: (
                f"{self._pick('startswith', 'endswith', 'contains')}({self.of('text', depth)}, {self.of('text', 0)})"
            ),
            lambda: f"{self.of('text', depth)} is {self._pick('', 'not ')}distinct from {self.of('text', depth)}",
            lambda: self._cast(self._pick("integer", "float", "decimal", "text", "boolean"), depth, "boolean"),
        ]
        return self._rng.choice(forms)()

    def _cast(self, family: str, depth: int, to: str) -> str:
        value = self.of(family, depth)
        if self._rng.random() < 0.15:
            return f"{value}::{to}" if value.startswith("(") or value.replace("_", "").isalnum() else f"({value})::{to}"
        return f"{self._pick('cast', 'cast', 'try_cast')}({value} as {to})"

    def _integer(self, depth: int) -> str:
        def integer() -> str:
            return self.of("integer", depth)

        def text() -> str:
            return self.of("text", depth)

        def when() -> str:
            return self.of(self._pick("date", "instant", "plain_time", "text"), depth)

        forms: list[Callable[[], str]] = [
            *[lambda: f"{integer()} {self._pick('+', '-', '*', '%', 'div', '&', '|', '^')} {integer()}"] * 6,
            lambda: f"{self._pick('-', '~', '+', 'abs', 'positive', 'negative')}({integer()})",
            lambda: f"- {integer()}",
            lambda: f"mod({integer()}, {integer()})",
            *[lambda: self._cast(self._family(), depth, self._pick("tinyint", "smallint", "int", "bigint"))] * 4,
            lambda: f"{self._pick('int', 'bigint', 'smallint', 'tinyint')}({self._number(depth)})",
            lambda: f"{self._pick('floor', 'ceil', 'ceiling')}({self.of(self._pick('float', 'integer'), depth)})",
            lambda: f"round({integer()}{self._pick('', ', 0', ', 2')})",
            lambda: f"{self._pick('length', 'char_length', 'octet_length')}({text()})",
            lambda: f"instr({text()}, {text()})",
            lambda: f"{self._pick('locate', 'position')}({text()}, {text()})",
            lambda: f"{self._pick('size', 'cardinality')}({self.of('list', depth)})",
            lambda: f"{self.of('list', 0)}[{self._pick('0', '1', '2', 'j', '-1')}]",
            lambda: (
                f"{self._pick('element_at', 'try_element_at')}({self.of('list', 0)}, {self._pick('1', '-1', '2', 'j')})"
            ),
            *[
                lambda: f"{self._pick(*_PARTS_OF_DAYS)}({when()})",
            ]
            * 3,
            *[lambda: f"{self._pick('hour', 'minute', 'second')}({when()})"] * 2,
            lambda: f"extract({self._pick(*_EXTRACTED)} from {when()})",
            lambda: f"date_part('{self._pick('year', 'MONTH', 'd', 'hours', 'week')}', {when()})",
            lambda: f"datediff({when()}, {when()})",
            lambda: f"unix_{self._pick('seconds', 'millis', 'micros')}({self.of('instant', depth)})",
        ]
        return self._rng.choice(forms)()

    def _float(self, depth: int) -> str:
        def number() -> str:
            return self._number(depth)

        def real() -> str:
            return self.of("float", depth)

        forms: list[Callable[[], str]] = [
            *[lambda: f"{real()} {self._pick('+', '-', '*', '/', '%')} {number()}"] * 3,
            lambda: f"{number()} {self._pick('+', '-', '*', '/')} {real()}",
            lambda: f"{self.of('integer', depth)} / {self.of('integer', depth)}",
            lambda: f"{self._pick('-', 'abs', '+', 'negative', 'positive')}({real()})",
            lambda: f"{self._pick('sqrt', 'sign', 'signum')}({number()})",
            lambda: f"nanvl({real()}, {real()})",
            lambda: f"round({real()}{self._pick('', ', 0', ', 1', ', 2', ', 5')})",
            *[lambda: self._cast(self._pick("integer", "float", "decimal", "text", "boolean", "instant"), depth,
                                 self._pick("float", "double"))] * 4,
            lambda: f"{self._pick('double', 'float')}({number()})",
            lambda: self._pick("pi()", "e()"),
        ]  # fmt: skip
        return self._rng.choice(forms)()

    def _decimal(self, depth: int) -> str:
        def exact() -> str:
            return self.of("decimal", depth)

        def other() -> str:
            return self.of(self._pick("decimal", "integer"), depth)

        def kind() -> str:
            digits = self._rng.choice([1, 3, 5, 9, 10, 18, 19, 20, 38])
            return f"decimal({digits},{self._rng.randint(0, min(digits, 12))})"

        forms: list[Callable[[], str]] = [
            *[lambda: f"{exact()} {self._pick('+', '-', '*', '*', '%')} {other()}"] * 4,
            lambda: f"{other()} {self._pick('+', '-', '*')} {exact()}",
            lambda: f"{self._pick('-', 'abs', '+', 'positive', 'negative')}({exact()})",
            lambda: f"round({exact()}{self._pick('', ', 0', ', 1', ', 2', ', 9')})",
            lambda: f"{self._pick('floor', 'ceil')}({exact()})",
            *[lambda: self._cast(self._pick("integer", "float", "decimal", "text", "boolean"), depth, kind())] * 6,
        ]
        return self._rng.choice(forms)()

    def _text(self, depth: int) -> str:
        def text() -> str:
            return self.of("text", depth)

        def count() -> str:
            return self._pick("0", "1", "2", "3", "-1", "-2", "5", "j", "y", "length(u)")

        def shown() -> str:
            return self.of(self._pick("text", "text", "integer", "boolean", "date", "instant", "plain_time"), depth)

        forms: list[Callable[[], str]] = [
            *[
                lambda: f"{self._pick(*_OF_A_TEXT)}({text()})",
            ]
            * 3,
            lambda: f"{self._pick('upper', 'lower')}({shown()})",
            lambda: f"concat({shown()}, {shown()})",
            lambda: f"{shown()} || {text()}",
            lambda: f"concat_ws({text()}, {text()}, {text()})",
            lambda: f"replace({text()}, {text()}, {text()})",
            lambda: f"replace({text()}, {text()})",
            lambda: f"translate({text()}, {text()}, {text()})",
            lambda: f"repeat({text()}, {self._pick('0', '2', '-1', '3', 'j')})",
            *[lambda: f"{self._pick('left', 'right')}({text()}, {count()})"] * 2,
            *[lambda: f"{self._pick('substring', 'substr')}({text()}, {count()}, {count()})"] * 2,
            lambda: f"substring({text()}, {count()})",
            lambda: f"substring({text()} from {count()} for {count()})",
            lambda: f"{self._pick('lpad', 'rpad')}({text()}, {count()}, {text()})",
            lambda: f"{self._pick('lpad', 'rpad')}({text()}, {count()})",
            lambda: f"trim({self._pick('both', 'leading', 'trailing')} {text()} from {text()})",
            lambda: f"regexp_replace({text()}, '{self._pick(*_SOUGHT)}', {quoted(self._pick('', '-', 'xy'))})",
            lambda: f"regexp_extract({text()}, '{self._pick('(a)(b)?', '([a-z]+)', '(.)$')}', {self._pick('0', '1')})",
            *[lambda: self._cast(self._family(), depth, "string")] * 4,
        ]
        return self._rng.choice(forms)()

    def _interval(self, *, long: bool) -> str:
        units = ["day", "week", "month", "year"] + (
            ["hour", "minute", "second", "millisecond", "microsecond"] if not long else []
        )
        count = self._rng.choice([0, 1, 2, 13, 100, -1, -5])
        form = self._pick("interval {0} {1}s", "interval '{0}' {1}", "interval {0} {1}")
        return form.format(count, self._rng.choice(units))

    def _date(self, depth: int) -> str:
        def day() -> str:
            return self.of(self._pick("date", "date", "instant", "plain_time", "text"), depth)

        def pure() -> str:
            return self.of("date", depth)

        def few() -> str:
            return self._pick("0", "1", "-1", "31", "j", "y", "h", "1000", "i")

        forms: list[Callable[[], str]] = [
            lambda: f"{pure()} {self._pick('+', '-')} {few()}",
            lambda: f"{few()} + {pure()}",
            lambda: f"{pure()} {self._pick('+', '-')} {self._interval(long=True)}",
            lambda: f"{self._interval(long=True)} + {pure()}",
            lambda: f"{self._pick('date_add', 'date_sub', 'add_months')}({day()}, {few()})",
            lambda: f"last_day({day()})",
            lambda: f"trunc({day()}, '{self._pick('year', 'month', 'quarter', 'week', 'MM', 'yy')}')",
            lambda: f"make_date({self._pick('2024', 'h', '1')}, {self._pick('2', 'j')}, {self._pick('29', '1', 'y')})",
            lambda: f"date_from_unix_date({few()})",
            lambda: f"to_date({day()})",
            *[lambda: self._cast(self._pick("instant", "plain_time", "text", "date"), depth, "date")] * 3,
        ]
        return self._rng.choice(forms)()

    def _instant(self, depth: int) -> str:
        units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        forms: list[Callable[[], str]] = [
            lambda: f"{self.of('instant', depth)} {self._pick('+', '-')} {self._interval(long=False)}",
            lambda: f"{self._interval(long=False)} + {self.of('instant', depth)}",
            *[
                lambda: (
                    f"date_trunc('{self._pick(*units)}', {self.of(self._pick('instant', 'date', 'plain_time'), depth)})"
                )
            ]
            * 2,
            lambda: f"timestamp_seconds({self._pick('k', 'i', '1700000000', '-1')})",
            *[lambda: self._cast(self._pick("date", "plain_time", "text", "integer"), depth, "timestamp")] * 2,
        ]
        return self._rng.choice(forms)()

    def _plain_time(self, depth: int) -> str:
        forms: list[Callable[[], str]] = [
            lambda: f"{self.of('plain_time', depth)} {self._pick('+', '-')} {self._interval(long=False)}",
            lambda: self._cast(self._pick("date", "instant", "text"), depth, "timestamp_ntz"),
        ]
        return self._rng.choice(forms)()

    def _list(self, depth: int) -> str:
        return f"array({', '.join(self.of('integer', depth) for _ in range(self._rng.randint(1, 3)))})"


RAISES, UNREAD, UNSURE = "raises", "cannot be read in process", "raises only if it is compiled"
"""What a row may give in place of a value. Of the second an error says so: Spark may have a value there. The third is
for Spark alone, where it has a value or none, depending on how it runs a query."""


@dataclass(frozen=True)
class Answer:
    """What an expression gives: the type of the column, and a value of each row, as `plain` has it, or `RAISES`."""

    kind: str
    values: tuple[Any, ...]


def answer_here(drawn: Drawn) -> Answer | None:
    """What an expression gives in process; None if it is refused."""
    written = [f"{drawn.expression} AS r"]
    try:
        evaluate.select(drawn.rows.slice(0, 0), written)
    except ConfigError:
        return None
    try:
        return _answer(evaluate.select(drawn.rows, written))
    except FlowError:
        rows = [_row_here(drawn.rows.slice(place, 1), written) for place in range(drawn.rows.num_rows)]
    kinds = {row.kind for row in rows if isinstance(row, Answer)}
    values = (row.values[0] if isinstance(row, Answer) else row for row in rows)
    return Answer(" or ".join(kinds) or _answer(evaluate.select(drawn.rows.slice(0, 0), written)).kind, tuple(values))


def _row_here(row: pa.Table, written: Sequence[str]) -> Answer | str:
    try:
        return _answer(evaluate.select(row, written))
    except FlowError as error:
        return UNREAD if "process" in str(error) else RAISES


def _answer(found: pa.Table) -> Answer:
    return Answer(kind_of(found.column(0).type), tuple(plain(found.column(0))))


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be compared: days and microseconds as numbers, because years may have more than four digits."""
    if pa.types.is_struct(column.type):
        return [dict(enumerate(values)) for values in zip(*map(plain, column.flatten()), strict=True)]
    if pa.types.is_date(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def difference(drawn: Drawn, here: Answer | None, there: Answer | None) -> str | None:
    """How what an expression gives in process differs from what it gives on Spark; None if it does not."""
    if here is None:
        return None
    if there is None:
        return f"Spark refuses it, and in process it gives {here.kind} {list(here.values)}"
    if here.kind != there.kind:
        return f"{here.kind} in process, and {there.kind} on Spark"
    inexact = drawn.expression.startswith((*(f"{name}(" for name in INEXACT), "pow(", "atan2("))
    for place, (mine, other) in enumerate(zip(here.values, there.values, strict=True)):
        if mine != UNREAD and other != UNSURE and not _same(mine, other, 1e-15 if inexact else 0.0):
            return f"row {place} gives {mine!r} in process, and {other!r} on Spark: {_named(drawn, place)}"
    return None


def difference_as_condition(drawn: Drawn, here: Answer | None) -> str | None:
    """How the rows that an expression keeps as a condition differ from those for which it is true."""
    if here is None or here.kind != "bool" or not {*here.values} <= {True, False, None}:
        return None
    numbered = drawn.rows.append_column("place", pa.array(range(drawn.rows.num_rows)))
    kept = evaluate.where(numbered, drawn.expression).column("place").to_pylist()
    true = [place for place, value in enumerate(here.values) if value]
    return None if kept == true else f"it is true for rows {true}, and as a condition it keeps {kept}"


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        close = isclose(a, b, rel_tol=tolerance, abs_tol=0.0) or (a != a and b != b)
        return close and (a != 0 or copysign(1, a) == copysign(1, b))
    return type(a) is type(b) and a == b


def _named(drawn: Drawn, place: int) -> str:
    """The values of a row that an expression names."""
    names = [name for name in drawn.rows.column_names if re.search(rf"\b{name}\b", drawn.expression)]
    return ", ".join(f"{name}={plain(drawn.rows.column(name).slice(place, 1))[0]!r}" for name in names)
