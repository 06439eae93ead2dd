"""Numbers, shares and times as the report writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

MISSING = "\N{EN DASH}"


def number(value: float, digits: int = 0) -> str:
    """Return a number with thousands separated."""
    return f"{value:,.{digits}f}"


def short(value: float) -> str:
    """Return a number in about four digits: `0.00123`, `12.3`, `45,678`, `1.2e-05`."""
    if not math.isfinite(value):
        return MISSING
    if value != 0 and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.2e}"
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """Return a share in percent: two decimals, or two digits where those would hide a tiny share."""
    if not math.isfinite(share):
        return MISSING
    return f"{share:.2%}" if share == 0 or abs(share) >= 0.0001 else f"{100 * share:.1e}%"


def signed(value: float, digits: int = 1) -> str:
    """Return a difference with its sign, nothing for what rounds to 0."""
    if not math.isfinite(value):
        return MISSING
    text = f"{value:+,.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text if any(digit in text for digit in "123456789") else f"{0:.{digits}f}"


def plural(count: int, noun: str) -> str:
    """Return `1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return `42 s`, `3 min 20 s`, `5 h 12 min` or `2 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(seconds: float) -> str:
    """Return a Unix time as a date and time in UTC."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return MISSING
