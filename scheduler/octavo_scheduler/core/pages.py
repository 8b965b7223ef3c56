"""One tier of one worker's pages: who may take them, who holds them, what can be found in them, when they are free again.

    free ──take──► held ──give_back──► free          (nothing can be found in it)
                    ▲  └──give_back──► cached ──take──► held by somebody else, for other tokens (evicted)
                    └──────share───────┘
    A page that a plan in flight names is fenced in between, until `lift`.

At every moment free + cached + held + fenced + quarantined = total. Page ids are 1..total; page 0 is the null page, which
belongs to nobody. A page that is given back more often than it was taken is quarantined: out of use, counted, no error.
So is one that the auditor doubts. It may still be in tables, whose sequences read on; it counts as quarantined, not as held.
"""

from collections.abc import Collection, KeysView, Mapping, Sequence, ValuesView
from typing import NamedTuple

NULL_PAGE = 0


class Content(NamedTuple):
    """What a full page holds, and the key under which it is found."""

    key: bytes
    tokens: tuple[int, ...]
    parent: bytes = b""
    """The key of the page before it."""


class PagePool:
    """Asking changes nothing; taking n pages gives n or none."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.refs = [0] * (total + 1)
        self.free = list(range(total, 0, -1))
        self.cached: dict[int, None] = {}
        """Pages without references whose tokens can still be found, least recently used first."""
        self.kept: dict[int, None] = {}
        """The same, of pinned content: evicted when no other page can be had."""
        self.fenced: dict[int, list[int]] = {}
        self.quarantined: set[int] = set()
        self.complaints: list[str] = []
        """Why pages were quarantined, one sentence each, until the auditor takes note."""
        self.num_held = 0
        self.num_extra_refs = 0
        """References beyond the first, over all pages."""
        self.peak_held = 0
        self._page_of: dict[bytes, int] = {}
        self._content: dict[int, Content] = {}
        self._pinned: frozenset[bytes] = frozenset()
        self._named_until: dict[int, int] = {}
        self._lifted = 0

    @property
    def num_usable(self) -> int:
        return self.total - len(self.quarantined)

    @property
    def num_free(self) -> int:
        return len(self.free)

    @property
    def num_cached(self) -> int:
        return len(self.cached) + len(self.kept)

    @property
    def num_available(self) -> int:
        """Pages that can be taken."""
        return len(self.free) + len(self.cached) + len(self.kept)

    @property
    def findable(self) -> KeysView[int]:
        """Pages that something can be found in."""
        return self._content.keys()

    @property
    def contents(self) -> ValuesView[Content]:
        """What can be found."""
        return self._content.values()

    @property
    def num_fenced(self) -> int:
        return sum(len(pages) for pages in self.fenced.values())

    def take(self, count: int, lost: list[tuple[int, Content]] | None = None) -> list[int] | None:
        """`count` pages with one reference each, or None when there are fewer. Cached ones are evicted when none is free.

        `lost` gets the evicted pages and what they hold until somebody writes them.
        """
        if count > self.num_available:
            return None
        evicted = [self._evict(lost) for _ in range(count - len(self.free))]
        num_left = len(self.free) - (count - len(evicted))
        pages = self.free[num_left:][::-1] + evicted
        del self.free[num_left:]
        for page in pages:
            self.refs[page] = 1
        self._hold(count)
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """One more reference to each of these pages, which are held or can be found."""
        for page in pages:
            if self.refs[page]:
                self.num_extra_refs += 1
            else:
                self._wake(page)
                self._hold(1)
            self.refs[page] += 1

    def give_back(self, pages: Sequence[int], until: int | None = None) -> None:
        """Drops one reference of each page. Pages without references are free or cached, from step `until` on.

        The last page of a block table becomes the oldest of the cached ones, so that prefixes lose their tails first.
        """
        doubtful: dict[int, tuple[int, str]] = {}
        for page in reversed(pages):
            if page == NULL_PAGE:
                continue
            if self.refs[page] <= 0:
                doubtful[page] = 0, f"page {page} is given back more often than it was taken"
                continue
            self.refs[page] -= 1
            last = max(until or 0, self._named_until.pop(page, 0))
            if self.refs[page]:
                self.num_extra_refs -= 1
                if last > self._lifted:
                    self._named_until[page] = last
                continue
            if page in self.quarantined:
                continue
            self.num_held -= 1
            if last > self._lifted:
                self.fenced.setdefault(last, []).append(page)
            else:
                self._rest(page)
        if doubtful:
            self.quarantine(doubtful)

    def lift(self, step: int) -> None:
        """Step `step` is done: what was fenced for it is free or cached."""
        self._lifted = max(self._lifted, step)
        for page in self.fenced.pop(step, ()):
            self._rest(page)

    def publish(self, page: int, content: Content) -> None:
        """From now on a page, held or fenced, can be found. The first page of a key stays; later ones remain private."""
        if content.key not in self._page_of and page not in self._content and page not in self.quarantined:
            self._page_of[content.key] = page
            self._content[page] = content

    def unpublish(self, keys: Sequence[bytes]) -> None:
        """Nothing is found under these keys any more."""
        for page in [self._page_of[key] for key in keys if key in self._page_of]:
            self._forget(page)
            for resting in (self.cached, self.kept):
                if page in resting:
                    del resting[page]
                    self.free.append(page)

    def find(self, content: Content) -> int | None:
        """The page under the content's key, if it does hold its tokens."""
        page = self._page_of.get(content.key)
        return page if page is not None and self._content[page].tokens == content.tokens else None

    def pin(self, keys: Collection[bytes]) -> None:
        """From now on these keys, and no others, are pinned: their pages are the last to be evicted."""
        self._pinned = frozenset(keys)
        resting = [*self.cached, *self.kept]
        self.cached.clear()
        self.kept.clear()
        for page in resting:
            self._rest(page)

    def num_found(self, keys: Collection[bytes]) -> int:
        """How many of these keys have a page."""
        return sum(key in self._page_of for key in keys)

    def flush(self) -> None:
        """Nothing can be found any more; cached pages are free."""
        self._page_of.clear()
        self._content.clear()
        self.free[:0] = [*self.cached, *self.kept]
        self.cached.clear()
        self.kept.clear()

    def quarantine(self, doubtful: Mapping[int, tuple[int, str]]) -> None:
        """Nobody gets these pages any more. For each: the tables that name it now, and may go on reading it; and why."""
        for page, (references, why) in doubtful.items():
            self.refs[page] = references
            self.quarantined.add(page)
            self.complaints.append(why)
            self.cached.pop(page, None)
            self.kept.pop(page, None)
            self._named_until.pop(page, None)
            if page in self._content:
                self._forget(page)
        for pages in (self.free, *self.fenced.values()):
            if not doubtful.keys().isdisjoint(pages):
                pages[:] = [page for page in pages if page not in doubtful]

    def recount(self) -> None:
        """Computes anew what is counted along the way."""
        self.num_held = sum(1 for page, refs in enumerate(self.refs) if refs and page not in self.quarantined)
        self.num_extra_refs = sum(refs - 1 for refs in self.refs if refs > 1)

    def _hold(self, count: int) -> None:
        self.num_held += count
        self.peak_held = max(self.peak_held, self.num_held)

    def _wake(self, page: int) -> None:
        """Takes a page without references from where it rests. One that was fenced stays named by the plan in flight."""
        for resting in (self.cached, self.kept):
            if page in resting:
                del resting[page]
                return
        step = next(step for step, pages in self.fenced.items() if page in pages)
        self.fenced[step].remove(page)
        self._named_until[page] = step

    def _rest(self, page: int) -> None:
        content = self._content.get(page)
        if content is None:
            self.free.append(page)
        else:
            (self.kept if content.key in self._pinned else self.cached)[page] = None

    def _evict(self, lost: list[tuple[int, Content]] | None) -> int:
        resting = self.cached or self.kept
        page = next(iter(resting))
        del resting[page]
        content = self._forget(page)
        if lost is not None:
            lost.append((page, content))
        return page

    def _forget(self, page: int) -> Content:
        content = self._content.pop(page)
        del self._page_of[content.key]
        return content
