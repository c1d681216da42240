"""Numbers as short texts with units."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """Return a short text of a number with so many digits, and with k, M or G for large numbers."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (1 - 0.5 * 0.1**digits) * size:
            return f"{value / size:.{digits}g}{letter}"
    return f"{value:.{digits}g}"


def distinct_numbers(values: Sequence[float]) -> list[str]:
    """Return short texts of different numbers, with as many digits as it takes to tell them apart.

    >>> distinct_numbers([99_990, 100_010])
    ['99.99k', '100k']
    """
    written: list[str] = []
    for digits in range(3, 16):
        written = [number(value, digits) for value in values]
        if len(set(written)) == len(values):
            break
    return written


def with_unit(written: str, unit: str) -> str:
    """Return a text of `number` with a unit, such as "7.7 MB"; thousands of seconds are written out."""
    if not unit:
        return written
    amount = written.rstrip("kMG")
    letter = written[len(amount) :]
    if unit == "s" and letter:
        return f"{float(amount) * {'k': 1e3, 'M': 1e6, 'G': 1e9}[letter]:,.0f} s"
    return f"{amount} {letter}{unit}"
