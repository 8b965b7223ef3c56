"""Chat templates of the model's own folder or file, rendered in Jinja's immutable sandbox."""

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
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self.source, self.special_tokens = source, special_tokens
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise StartError(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Ends where the assistant's answer begins. Raises InvalidRequest when the template refuses the messages."""
        turns: list[dict[str, Any]] = [{"role": role, "content": content} for role, content in messages]
        try:
            return self._template.render(messages=turns, add_generation_prompt=True, **self.special_tokens)
        except Exception as error:  # a template is a program: with messages that it did not foresee it fails in any way
            reason = str(error)[:MOST_SHOWN]
            raise InvalidRequest(f"the model's chat template refuses these messages: {reason}") from error
