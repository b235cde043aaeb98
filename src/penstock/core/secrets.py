"""Passwords in addresses: taken out of every text that people see."""

from __future__ import annotations

import re
from urllib.parse import unquote

_HIDDEN = "***"

_IN_ADDRESS = re.compile(r"(://[^\s:/@]*:)(\S*)@")
"""``scheme://user:password@host``; the password goes on to the last @, however it is written."""

_AS_PARAMETER = re.compile(r"((?:password|passwd|pwd|secret|secret_key|token|sig)=)('[^']*'|[^&\s'\"]+)", re.IGNORECASE)

_SHORTEST = 3
"""Shorter parts of a password are left where they are: they would be found in any text."""


def redacted(text: str, address: str = "") -> str:
    """A text without passwords: those of the addresses in it, and all that `address` has, in whole or in part.

    >>> redacted("Cannot connect to postgresql://me:secret@db/shop")
    'Cannot connect to postgresql://me:***@db/shop'
    >>> redacted('invalid percent-encoded token: "se%cret"', address="postgresql://me:se%cret@db/shop")
    'invalid percent-encoded token: "***"'
    """
    text = _AS_PARAMETER.sub(rf"\1{_HIDDEN}", _IN_ADDRESS.sub(rf"\1{_HIDDEN}@", text))
    for secret in _secrets(address):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(address: str) -> list[str]:
    """The passwords of an address as they are written and as they are meant, and their parts, the longest first."""
    found = [match[2] for pattern in (_IN_ADDRESS, _AS_PARAMETER) for match in pattern.finditer(address)]
    whole = {form for secret in found for form in (secret, unquote(secret), secret.strip("'"))}
    # A driver that reads the address otherwise takes a part of the password for a host, or for a parameter.
    parts = {part for form in whole for part in re.split(r"[@:/?#&%=]", form)}
    return sorted((part for part in whole | parts if len(part) >= _SHORTEST), key=len, reverse=True)
