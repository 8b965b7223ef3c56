"""What a what-if changes: names and values as an operator writes them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from octavo_scheduler import limits
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Joined

POOL_NAMES = {
    "page_size": "page_size",
    "pages": "device_pages",
    "host_pages": "host_pages",
    "max_slots": "max_slots",
    "max_context": "max_context",
    "max_step_tokens": "max_step_tokens",
}
"""Of every worker, as they are called here and in its Joined."""
MOST = {
    "device_pages": limits.MAX_WORKER_PAGES,
    "host_pages": limits.MAX_WORKER_PAGES,
    "max_slots": limits.MAX_WORKER_SLOTS,
}
"""What a worker may have in a Hello, too."""
SETTING_KINDS = {name: kind for name, kind in get_type_hints(Settings).items() if get_origin(kind) is not Mapping}
NAMES = sorted({*POOL_NAMES, *SETTING_KINDS})

SWITCH = {"on": True, "true": True, "off": False, "false": False}


@dataclass(frozen=True)
class Change:
    """Settings and pools that differ from the recorded ones."""

    settings: Mapping[str, Any]
    pool: Mapping[str, int]

    @classmethod
    def parse(cls, text: str) -> "Change":
        """`name=value,name=value`. Raises ValueError with a sentence for a name or value that there is not."""
        pairs = [pair.partition("=") for pair in text.split(",") if pair]
        settings = {name: _value(name, SETTING_KINDS[name], text) for name, _, text in pairs if name in SETTING_KINDS}
        pool = {POOL_NAMES[name]: _count(name, text) for name, _, text in pairs if name in POOL_NAMES}
        for name, equals, _ in pairs:
            if name not in NAMES or not equals:
                raise ValueError(f"{name} is nothing that can be changed; these can: {', '.join(NAMES)}")
        return cls(settings, pool)

    def of_settings(self, settings: Settings) -> Settings:
        """Raises ValueError where they contradict each other."""
        return replace(settings, **self.settings)

    def of_worker(self, joined: Joined) -> Joined:
        """A worker with other pages has the same memory for them, unless their number is given too."""
        size = self.pool.get("page_size", joined.page_size)
        same_memory: dict[str, Any] = {
            "page_bytes": joined.page_bytes * size // joined.page_size,
            "device_pages": max(joined.device_pages * joined.page_size // size, 1),
            "host_pages": joined.host_pages * joined.page_size // size,
        }
        return replace(joined, **{**same_memory, **self.pool})


def _count(name: str, text: str) -> int:
    """Of pages, slots or tokens; there may be no host pages."""
    count: int = _value(name, int, text)
    least = 0 if name == "host_pages" else 1
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {count}")
    most = MOST.get(POOL_NAMES[name], limits.MAX_CONTEXT_TOKENS)
    if count > most:
        raise ValueError(f"{name} must be at most {most}, not {count}")
    return count


def _value(name: str, kind: Any, text: str) -> Any:
    choices = [inner for inner in get_args(kind) if inner is not NoneType]
    if get_origin(kind) is Literal:
        if text not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {text}")
        return text
    if choices:
        return None if text == "none" else _value(name, choices[0], text)
    try:
        return SWITCH[text] if kind is bool else kind(text)
    except (KeyError, ValueError, TypeError) as error:
        wanted = "on or off" if kind is bool else f"of type {getattr(kind, '__name__', kind)}"
        raise ValueError(f"{name} must be {wanted}, not {text}") from error
