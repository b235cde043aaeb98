"""Texts as dates and timestamps, and these as texts, as Spark reads and writes them: functions for a DuckDB.

A text that Spark cannot read is NULL. One that Spark can read, and a DuckDB cannot, is an error: with a zone that has a
name, without a date, or so far away that it has more digits in the year.
"""

from __future__ import annotations

DAY, MOMENT, INSTANT = "read_day", "read_moment", "read_instant"
"""DuckDB's names of what reads a text, once `MACROS` are there."""

DAY_TEXT, MOMENT_TEXT = "day_text", "moment_text"
"""What writes a date or a timestamp."""

OF_SECONDS = "instant_of_seconds"
"""The instant so many seconds after 1970."""

BLANK = r"[\x00-\x20\x7f]*"
"""What Spark leaves off at both ends of a text."""

_DATE = r"[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
_PART_OF_DATE = r"[+-]?[0-9]{4,6}(?:-[0-9]{1,2}){0,2}"
_MAYBE_MORE = "(?:-[0-9]{1,2}(?:-[0-9]{1,2}(?:[ T].*)?)?)?"
_HOUR, _MINUTE = r"(?:[01]?[0-9]|2[0-3])", r"[0-5]?[0-9]"
_ZONED = rf":{_MINUTE}:{_MINUTE}(?:\.[0-9]*)?(?:[^0-9.].*|\.[^0-9].*)?"
_TIME = rf"{_HOUR}(?::{_MINUTE}|{_ZONED})?"
_TODAY = rf"T{_TIME}|{BLANK}{_HOUR}(?::{_MINUTE}|{_ZONED})"
_USUAL_DATE, _USUAL_HOUR = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[ T](?:[01][0-9]|2[0-3]):[0-9]{2}"
_USUAL_SECOND = r":[0-9]{2}(?:\.[0-9]{1,6})?"
_USUAL = f"{_USUAL_DATE}(?:{_USUAL_HOUR}(?:{_USUAL_SECOND})?)?"
_USUAL_ZONED = f"{_USUAL_DATE}{_USUAL_HOUR}{_USUAL_SECOND}(?:Z|[+-]0[0-9]:[0-5][0-9])"
_HOURS, _SIXTY = "(?:0[0-9]|1[0-7])", "[0-5][0-9]"
_EIGHTEEN = "18(?:(?:00){1,2}|:0{1,2}|:00:00)?"
_OFFSET = rf"[+-](?:[0-9]|{_HOURS}(?:{_SIXTY}){{0,2}}|(?:[0-9]|{_HOURS}):(?:[0-9]|{_SIXTY}(?::{_SIXTY})?)|{_EIGHTEEN})"


def _whole(pattern: str) -> str:
    return f"'(?s)^{BLANK}(?:{pattern}){BLANK}$'"


def _error(why: str) -> str:
    return f"error('''' || x || ''' is not read in process: {why}')"


_FAR = _error("its year has too many digits")

MACROS = rf"""
    CREATE MACRO first_day(x) AS regexp_extract(
        regexp_extract(x, '-?[0-9]+(?:-[0-9]+){{0,2}}') || '-01-01', '^-?[0-9]+-[0-9]+-[0-9]+'
    );
    CREATE MACRO {DAY}(x) AS CASE
        WHEN regexp_matches(x, {_whole(f"{_PART_OF_DATE}|{_DATE}[ T].*")}) THEN TRY_CAST(first_day(x) AS DATE)
        WHEN regexp_matches(x, {_whole(f"[+-]?[0-9]{{7}}{_MAYBE_MORE}")}) THEN {_FAR}
    END;
    CREATE MACRO local_time(x) AS TRY_CAST(
        first_day(x) || ' '
        || regexp_extract(regexp_extract(x, '[0-9][ T]([0-9:]+)', 1) || ':00:00', '^[0-9]+:[0-9]+:[0-9]+')
        || '.' || regexp_extract(x, ':[0-9]+:[0-9]+\.([0-9]{{1,6}})', 1) || '0'
    AS TIMESTAMP);
    CREATE MACRO zone_of(x) AS regexp_extract(
        x, '(?s):[0-9]+:[0-9]+(?:\.[0-9]*)?[\x00-\x20]*(.*?)[\x00-\x20\x7f]*$', 1
    );
    CREATE MACRO offset_named(x, z) AS CASE
        WHEN z IN ('', 'Z', 'UTC', 'GMT', 'UT') THEN INTERVAL 0 SECOND
        WHEN regexp_matches(z, '^(?:UTC|GMT|UT)?{_OFFSET}$') THEN CAST(replace(regexp_replace(
            z, '^[A-Z]*([+-])([0-9]{{1,2}}):?([0-9]{{0,2}}):?([0-9]{{0,2}})$',
            '\1\2 hours \10\3 minutes \10\4 seconds'
        ), '+', '') AS INTERVAL)
        WHEN regexp_matches(z, '^[A-Za-z][A-Za-z0-9~/._+-]+$') AND NOT regexp_matches(z, '^(?:UTC|GMT|UT)[+-]')
        THEN {_error("write its zone as an offset, like +02:00")}
    END;
    CREATE MACRO offset_of(x) AS offset_named(x, zone_of(x));
    CREATE MACRO {MOMENT}(x) AS CASE
        WHEN regexp_matches(x, '^{_USUAL}$') THEN TRY_CAST(x AS TIMESTAMP)
        WHEN regexp_matches(x, {_whole(f"[+-]?[0-9]{{6}}{_MAYBE_MORE}")}) THEN {_FAR}
        WHEN regexp_matches(x, {_whole(_PART_OF_DATE)}) THEN TRY_CAST(first_day(x) AS TIMESTAMP)
        WHEN regexp_matches(x, {_whole(f"{_DATE}[ T]{_TIME}")})
        THEN CASE WHEN offset_of(x) IS NOT NULL THEN local_time(x) END
    END;
    CREATE MACRO {INSTANT}(x) AS CAST(CASE
        WHEN regexp_matches(x, '^(?:{_USUAL}|{_USUAL_ZONED})$') THEN TRY_CAST(x AS TIMESTAMP WITH TIME ZONE)
        WHEN regexp_matches(x, {_whole(f"[+-]?[0-9]{{6}}{_MAYBE_MORE}")}) THEN {_FAR}
        WHEN regexp_matches(x, {_whole(_PART_OF_DATE)}) THEN TRY_CAST(first_day(x) AS TIMESTAMP)
        WHEN regexp_matches(x, {_whole(f"{_DATE}[ T]{_TIME}")}) THEN local_time(x) - offset_of(x)
        WHEN regexp_matches(x, '(?s)^(?:{_TODAY}){BLANK}$')
        THEN {_error("write its date, which Spark takes to be today")}
    END AS TIMESTAMP WITH TIME ZONE);
    CREATE MACRO {DAY_TEXT}(d) AS CASE
        WHEN d BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN CAST(d AS VARCHAR)
        ELSE CASE WHEN year(d) < 0 THEN '-' WHEN year(d) > 0 THEN '+' ELSE '' END
            || CASE WHEN abs(year(d)) < 1000 THEN lpad(CAST(abs(year(d)) AS VARCHAR), 4, '0')
                ELSE CAST(abs(year(d)) AS VARCHAR) END || strftime(d, '-%m-%d')
    END;
    CREATE MACRO {MOMENT_TEXT}(t) AS CASE
        WHEN t >= TIMESTAMP '0001-01-01' AND t < TIMESTAMP '10000-01-01' THEN CAST(t AS VARCHAR)
        ELSE {DAY_TEXT}(CAST(t AS DATE)) || ' ' || CAST(CAST(t AS TIME) AS VARCHAR)
    END;
    CREATE MACRO {OF_SECONDS}(s) AS CASE
        WHEN s IS NULL THEN NULL
        WHEN s BETWEEN -9223372022400 AND 9223372036854
        THEN CAST(make_timestamp(CAST(s AS BIGINT) * 1000000) AS TIMESTAMP WITH TIME ZONE)
        ELSE error(CAST(s AS VARCHAR) || ' seconds after 1970 are beyond the timestamps that there are in process')
    END;
"""
"""SQL that makes these functions known to a DuckDB."""
