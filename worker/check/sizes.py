"""Sizes: bytes, as people read them."""


def said_bytes(count: int) -> str:
    """Says how many bytes, in the largest unit of which there is one at least.

    Example:
        >>> said_bytes(800), said_bytes(3 << 19)
        ('800 B', '1.5 MiB')
    """
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"
