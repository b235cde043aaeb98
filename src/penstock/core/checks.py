"""Checks of arguments before they are used, so that the error for a wrong one says what to write."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard

from penstock.core.errors import ConfigError


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; booleans are not.

    >>> is_number(0.5), is_number(2), is_number("2"), is_number(True)
    (True, True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number.

    >>> is_whole(2), is_whole(2.0), is_whole(None)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_quantile(share: object) -> None:
    """Raise an error unless the share of values below a quantile is one."""
    if not is_number(share) or not 0 <= share <= 1:
        raise ConfigError(f"quantile={share!r} must be a number from 0 to 1, such as 0.99.")


def check_suffix(suffix: object) -> None:
    """Raise an error unless ``suffix=`` is text."""
    if not isinstance(suffix, str):
        raise ConfigError(f"suffix={suffix!r} must be a string: what to append to a name that is taken, like '_right'.")
