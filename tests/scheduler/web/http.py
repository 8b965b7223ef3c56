"""HTTP for tests: one request to a server of this machine, and what it answers."""

import asyncio
import http.client
import json
from dataclasses import dataclass, field
from typing import Any

from tests.patience import PATIENCE

JSON = {"content-type": "application/json"}


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Of a stream: (name, content)."""
        found = []
        for event in self.body.split("\n\n")[:-1]:
            name, _, rest = event.partition("data: ")
            found.append((name.removeprefix("event: ").strip() or "message", json.loads(rest)))
        return found


@dataclass
class Browser:
    """Sends requests to HOST:PORT, each over a connection of its own."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)
    context: Any = None
    """Of TLS, if that is spoken."""

    def connection(self) -> http.client.HTTPConnection:
        if self.context is not None:
            return http.client.HTTPSConnection(self.address, timeout=PATIENCE, context=self.context)
        return http.client.HTTPConnection(self.address, timeout=PATIENCE)

    def begin(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Any:
        """A connection on which the request was sent."""
        connection = self.connection()
        connection.request(method, path, body, {**self.headers, **(headers or {})})
        return connection

    def ask(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Reply:
        connection = self.begin(method, path, body, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return reply

    async def get(self, path: str, **headers: str) -> Reply:
        return await asyncio.to_thread(self.ask, "GET", path, None, headers)

    async def call(self, method: str, message: object = None, **headers: str) -> Reply:
        """One of our methods, by "Service/Method"."""
        body = message if isinstance(message, str) else json.dumps(message or {})
        return await asyncio.to_thread(self.ask, "POST", f"/octavo.v1.{method}", body, {**JSON, **headers})
