"""Numbers in sentences."""


def many(count: int, one: str, several: str | None = None) -> str:
    """1 page, 2 pages."""
    return f"{count} {one if count == 1 else several or one + 's'}"
