"""Who may ask for what by HTTP, and what browsers are told about it.

Where there are tokens, a page of somebody else cannot send one. Where there are none, which only an address of this machine
allows, a browser on it must not be tricked into asking: a name that leads here must be this machine's own (else a stranger's
name could be made to lead here), and a page that asks must have come from here. No answer ever allows another origin to
read it.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo_scheduler.roles import FORBIDDEN, Role, Tokens

OWN_NAMES = {"localhost", "127.0.0.1", "::1"}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}

Refusal = tuple[int, str]


class Guard:
    """`host`: the one that is listened on, empty for a socket file."""

    def __init__(self, tokens: Tokens, host: str) -> None:
        self._tokens = tokens
        self._names = OWN_NAMES | {host.strip("[]")}

    def refusal(self, headers: Headers, needed: Role) -> Refusal | None:
        """HTTP status and a sentence for whoever may not have what needs this role."""
        if not self._tokens:
            return self._tricked(headers)
        given = [("authorization", value) for value in headers.getlist("authorization")]
        role = self._tokens.role_of(given)
        if role >= needed:
            return None
        return (401, "a valid bearer token is needed") if role is Role.ANYONE else (403, FORBIDDEN)

    def _tricked(self, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        if urlsplit(f"//{host}").hostname not in self._names:
            return 421, "this server is not called so; use the address that it listens on"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "pages of other servers may not ask this one"
        return None


class BrowserHeaders:
    """Adds HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        await self._app(scope, receive, send_with_headers)
