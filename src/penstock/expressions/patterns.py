"""Regular expressions of Java, by which Spark matches, in the words of DuckDB's; those that differ are refused.

Where only some texts would be matched otherwise, such a text is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.core.errors import ConfigError
from penstock.expressions.casts import error
from penstock.expressions.kinds import literal

_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
"""What ends a line in Java; in DuckDB only the first does."""

_MOST_TIMES = 1000
"""How often DuckDB repeats something that is to come a number of times."""

_SPACE = r"\t\n\x0B\f\r "
_PLAIN = r"\\(?:[dDwWtnrf]|[^\w\s]|[pP]\{[A-Z][a-z]?\})"
_IN_CLASS = rf"(?:{_PLAIN}|\\s(?!-[^\]])|(?!&&)[^\[\]\\])"
_TOKEN = re.compile(
    rf"""(?P<plain>{_PLAIN}|[^\\\[\]{{}}().*+?^$|])
    |(?P<dot>\.)
    |(?P<space>\\[sS])
    |(?P<group>\((?!\?)|\(\?:|\)|\|)
    |(?P<times>(?:[*+?]|\{{\d+(?:,\d*)?\}})\??(?![*+?{{]))
    |(?P<start>\^|\\A|\\z)
    |(?P<end>\$)
    |(?P<word>\\[bB])
    |(?P<set>\[\^?{_IN_CLASS}+\])
    """,
    re.VERBOSE | re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([is]+)\)")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression in DuckDB's SQL, and what it may be asked of."""

    sql: str
    groups: int
    """How many groups it has."""
    may_be_empty: bool
    """Whether it may match between two letters."""
    only_ascii: bool
    """Whether it matches other letters than those of ASCII otherwise than in Spark."""
    sees_end: bool
    """Whether it asks for the end of a text, which in Spark is also before a last line break."""

    def guarded(self, text: str, result: str) -> str:
        """A result of matching a text; an error where Spark's would be another."""
        whens = ""
        if self.only_ascii:
            wrong = r"'{}' holds letters beyond ASCII, which \b, \B and (?i) see otherwise in process than in Spark"
            whens += f" WHEN strlen({text}) <> length({text}) THEN {error(wrong, text)}"
        if self.sees_end:
            wrong = r"a text ends with a line break, before which $ matches on Spark and not in process. Write \\z"
            whens += rf" WHEN regexp_matches({text}, '[{_ENDS}]\z') THEN {error(wrong)}"
        return f"CASE{whens} ELSE {result} END" if whens else result


def pattern(java: str) -> Pattern:
    """What DuckDB matches as Spark matches a pattern.

    >>> print(pattern("a.b").sql)
    'a[^\\n\\r\\x{85}\\x{2028}\\x{2029}]b'
    """
    flags = _FLAGS.match(java)
    place, across_lines = (flags.end(), "s" in flags[1]) if flags else (0, False)
    words, kinds = [flags[0] if flags else ""], set()
    shape, repeated = "", []
    opened: list[int] = []
    while place < len(java):
        token = _TOKEN.match(java, place)
        if token is None or any(int(times) > _MOST_TIMES for times in re.findall(r"\d+", token["times"] or "")):
            raise ConfigError(
                f"{java[place : place + 10]!r} in a pattern is not supported in process, or means something else there"
            )
        kind, word = str(token.lastgroup), token[0]
        kinds.add(kind)
        words.append(_in_duckdb(kind, word, across_lines))
        shape += word if kind in ("group", "times") else "" if kind in ("start", "end", "word") else "x"
        place = token.end()
        if word.startswith("("):
            opened.append(len(shape) - len(word))
        elif word == ")" and opened:
            first = opened.pop()
            if java[place : place + 1] in ("*", "+", "{"):
                repeated.append(shape[first:])
    try:
        parsed = re.compile(shape)
        if any(re.fullmatch(group, "") for group in repeated):
            raise ConfigError(
                f"the pattern {java!r} repeats a part that may be empty, which matches differently in process"
            )
    except re.error as unread:
        raise ConfigError(f"the pattern {java!r} cannot be read: {unread}") from None
    only_ascii = "word" in kinds or (flags is not None and "i" in flags[1])
    return Pattern(literal("".join(words)), parsed.groups, parsed.fullmatch("") is not None, only_ascii, "end" in kinds)


def _in_duckdb(kind: str, word: str, across_lines: bool) -> str:
    if kind == "dot":
        return word if across_lines else f"[^{_ENDS}]"
    if kind == "space":
        return f"[^{_SPACE}]" if word.isupper() else f"[{_SPACE}]"
    if kind == "end":
        return r"\z"
    return re.sub(r"(\\[^s])|\\s", lambda found: found[1] or _SPACE, word) if kind == "set" else word
