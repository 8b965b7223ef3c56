"""Chat templates of the model's own folder or file, rendered in a sandbox with a budget."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from octavo_scheduler.errors import InvalidRequest, StartError

MOST_SHOWN = 256
"""Characters of a template's own words, which may quote a whole message."""


def _raise(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class ChatTemplate:
    """Renders [(role, content)] to the text that the model was trained on."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        from jinja2 import TemplateError  # only models with a template need it

        from octavo_scheduler.sandbox import Sandbox

        self.source, self.special_tokens = source, special_tokens
        self._sandbox = Sandbox()
        self._sandbox.globals.update(raise_exception=_raise, strftime_now=_now)
        try:
            self._template = self._sandbox.template(source)
        except (TemplateError, RecursionError) as error:
            raise StartError(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Ends where the assistant's answer begins. Raises InvalidRequest when the template refuses the messages."""
        turns: list[dict[str, Any]] = [{"role": role, "content": content} for role, content in messages]
        try:
            return self._sandbox.render(
                self._template, messages=turns, add_generation_prompt=True, **self.special_tokens
            )
        except Exception as error:  # a template is a program: with messages that it did not foresee it fails in any way
            reason = str(error)[:MOST_SHOWN]
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {reason}", field="messages"
            ) from error
