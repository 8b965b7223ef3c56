"""One tier of one worker's pages: who may take them, who holds them, when they are free again.

    take ──► held ──give_back──► free            (nobody in flight names the page)
                └───give_back──► fenced ──lift──► free   (a plan in flight names it)

At every moment free + cached + held + fenced + quarantined = total. Page ids are 1..total; page 0 is the null page, which
belongs to nobody. A page that is given back more often than it was taken is quarantined: out of use, counted, no error.
"""

NULL_PAGE = 0


class PagePool:
    """Asking changes nothing; taking n pages gives n or none."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.refs = [0] * (total + 1)
        self.free = list(range(total, 0, -1))
        self.fenced: dict[int, list[int]] = {}
        self.quarantined: set[int] = set()
        self.num_held = 0
        self.peak_held = 0

    @property
    def num_free(self) -> int:
        return len(self.free)

    @property
    def num_fenced(self) -> int:
        return sum(len(pages) for pages in self.fenced.values())

    def take(self, count: int) -> list[int] | None:
        """`count` pages with one reference each, or None when there are fewer."""
        if count > len(self.free):
            return None
        if count == 0:
            return []
        pages = self.free[-count:][::-1]
        del self.free[-count:]
        for page in pages:
            self.refs[page] = 1
        self.num_held += count
        self.peak_held = max(self.peak_held, self.num_held)
        return pages

    def give_back(self, pages: list[int], until: int | None = None) -> None:
        """Drops one reference of each page. Pages without references become free, or fenced until step `until` is done."""
        released = self.free if until is None else self.fenced.setdefault(until, [])
        for page in pages:
            if page == NULL_PAGE:
                continue
            if self.refs[page] <= 0:
                self._quarantine(page)
                continue
            self.refs[page] -= 1
            if self.refs[page] == 0:
                self.num_held -= 1
                if page not in self.quarantined:
                    released.append(page)

    def lift(self, step: int) -> None:
        """Step `step` is done: what was fenced for it is free."""
        self.free.extend(self.fenced.pop(step, ()))

    def _quarantine(self, page: int) -> None:
        self.quarantined.add(page)
        for pages in (self.free, *self.fenced.values()):
            if page in pages:
                pages.remove(page)
