"""Formats sizes and ages as text."""

from itertools import pairwise


def size_text(count: int) -> str:
    """Formats a number of bytes in the largest unit that gives at least 1.

    Example:
        >>> size_text(800), size_text(3 << 19)
        ('800 B', '1.5 MiB')
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"


def age_text(seconds: float) -> str:
    """Formats an age: seconds below 2 minutes, then the two largest units.

    Example:
        >>> age_text(7.4), age_text(119), age_text(200), age_text(7_500), age_text(266_400)
        ('7 s', '119 s', '3 min 20 s', '2 h 5 min', '3 d 2 h')
    """
    left = round(seconds)
    if left < 120:
        return f"{left} s"
    units = pairwise((("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)))
    (large, size), (small, part) = next(pair for pair in units if left >= pair[0][1])
    return f"{left // size} {large} {left % size // part} {small}"
