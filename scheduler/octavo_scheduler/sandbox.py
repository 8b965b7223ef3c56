"""Jinja's immutable sandbox with a budget: a template that came with a model can neither reach out nor go on for ever.

Every item of a loop costs a step of the budget of one rendering, and every call some. Products and powers, by which a few
letters become gigabytes, and numbers that pad text are held to what a prompt can need.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from threading import Lock
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo_scheduler.limits import MAX_RENDERED_CHARACTERS, MAX_TEMPLATE_STEPS

_LOOP_FILTER = "_counted"
_MOST_PADDING = 1 << 17
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "indent", "wordwrap", "batch", "slice"}
_STEPS_OF_A_CALL, _ITEMS_FOR_A_STEP = 16, 64
_LARGEST_POWER_BITS = 1 << 10


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles one template and renders it, for one thread at a time."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self.filters.update({name: self._guarded(name, each) for name, each in self.filters.items()})
        self.filters[_LOOP_FILTER] = self._counted
        self._steps_left = 0
        self._turn = Lock()

    def template(self, source: str) -> Template:
        """Raises jinja2.TemplateError."""
        tree = self.parse(source)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _LOOP_FILTER, [], [], None, None, lineno=loop.lineno)
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def render(self, template: Template, **values: Any) -> str:
        """Raises whatever a template can raise."""
        with self._turn:
            return self._render(template, **values)

    def _render(self, template: Template, **values: Any) -> str:
        self._steps_left = MAX_TEMPLATE_STEPS
        pieces, size = [], 0
        for piece in template.generate(**values):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RENDERED_CHARACTERS:
                raise SecurityError(f"it writes more than {MAX_RENDERED_CHARACTERS} characters")
        return "".join(pieces)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """What a template calls."""
        self._charge(getattr(obj, "__name__", ""), (*args, *kwargs.values()))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """left * right, left ** right."""
        is_whole = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and not (is_whole and left.bit_length() * right <= _LARGEST_POWER_BITS):
            raise SecurityError("it raises to a power that is too large")
        for some, count in ((left, right), (right, left)):
            if hasattr(some, "__len__") and isinstance(count, int) and len(some) * count > MAX_RENDERED_CHARACTERS:
                raise SecurityError("it repeats something too often")
        return super().call_binop(context, operator, left, right)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._spend()
            yield item

    def _guarded(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that costs what a call does."""

        @wraps(made)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self._charge(name, (*args, *kwargs.values()))
            return made(*args, **kwargs)

        return guarded

    def _charge(self, name: str, values: tuple[Any, ...]) -> None:
        """For a call with these arguments, which it may look through."""
        if name in _PADDING and any(isinstance(value, int) and abs(value) > _MOST_PADDING for value in values):
            raise SecurityError(f"it asks for more than {_MOST_PADDING} spaces or zeros")
        sized = sum(len(value) for value in values if isinstance(value, str | list | tuple | dict | range))
        self._spend(_STEPS_OF_A_CALL + sized // _ITEMS_FOR_A_STEP)

    def _spend(self, steps: int = 1) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise SecurityError(f"it takes more than {MAX_TEMPLATE_STEPS} steps")
