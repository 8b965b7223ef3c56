"""What a log says instead of token ids, tenants and salts: nobody learns a word from it, and every plan comes out alike.

The core asks of tokens only whether two sequences under one salt begin alike, and whether a sampled token is one of the
request's stop tokens. So the token at place i becomes a hash of a secret, the salt and all tokens up to and including i:
equal beginnings stay equal, and from the first difference on nothing is. The same token at two places, or after two
different beginnings, has two unrelated pseudonyms, so there is nothing to count. The secret is drawn for each log and
never written.

Pseudonyms are 31 bits. Two tokens that follow the same beginning get the same one with a chance of 1 in 2³¹.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any, TypeVar

from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import NO_TOKEN, Event, Joined, Pin, StepDone
from octavo_scheduler.core.request import NO_BIASES, RequestSpec
from octavo_scheduler.core.request import Sequence as Branch

STOP = 0
"""Stands for every stop token, among the stop tokens of a request and at the end of its answer."""
VOCABULARY = 1 << 31
"""Pseudonyms lie in [1, VOCABULARY)."""


S = TypeVar("S", bound=Settings)


class Pseudonyms:
    """Of one log. Remembers the hash at the end of what each live branch begins with, and of what it has said."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: at least 16 random bytes, to be forgotten with this object."""
        self._secret = secret
        self._beginnings: dict[str, list[bytes]] = {}
        """Of each branch."""
        self._branches: dict[Branch, bytes] = {}

    def settings(self, settings: S) -> S:
        """The settings as the log may know them: what is chosen by name is chosen by tenant."""
        values = {field.name: getattr(settings, field.name) for field in fields(settings)}
        known: dict[str, Any] = {
            name: {self._tenant(tenant): value for tenant, value in by_tenant.items()}
            for name, by_tenant in values.items()
            if isinstance(by_tenant, Mapping)
        }
        return replace(settings, **known)

    def spec(self, spec: RequestSpec) -> RequestSpec:
        """The request as the log may know it."""
        prompt, _ = self._beginning(spec.salt, spec.prompt)
        branches = [self._beginning(spec.salt, spec.known(branch)) for branch in range(spec.n if spec.held else 1)]
        self._beginnings[spec.id] = [chain for _, chain in branches]
        return replace(
            spec,
            prompt=prompt,
            held=tuple(known[len(prompt) :] for known, _ in branches) if spec.held else (),
            stop_token_ids=frozenset({STOP}) if spec.stop_token_ids else frozenset(),
            tenant=self._tenant(spec.tenant),
            salt=self._salt(spec.salt),
            sampling=replace(spec.sampling, biases=NO_BIASES),
        )

    def event(self, event: Event, owners: "Sequence[Branch | None] | None") -> Event:
        """The event as the log may know it. `owners`: whose a result's tokens are, None for one that comes too late.

        None for all of them: they do not fit the plan.
        """
        if isinstance(event, Joined):
            return replace(event, vocab_size=VOCABULARY)
        if isinstance(event, StepDone):
            return replace(event, tokens=self._tokens(event.tokens, owners), logprobs=bytes(len(event.logprobs)))
        if isinstance(event, Pin):
            tokens, _ = self._beginning(event.salt, event.tokens)
            return replace(event, tokens=tokens, salt=self._salt(event.salt))
        return event

    def forget(self, live: Container[str]) -> None:
        """Forgets all requests but the live ones."""
        self._beginnings = {request: chains for request, chains in self._beginnings.items() if request in live}
        self._branches = {branch: chain for branch, chain in self._branches.items() if branch.request.spec.id in live}

    def __len__(self) -> int:
        return len(self._beginnings)

    def _beginning(self, salt: str, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], bytes]:
        """Pseudonyms of a sequence's first tokens, and the hash at their end."""
        chain = self._hash(b"beginning", salt)
        pseudonyms: list[int] = []
        for token in tokens:
            chain, pseudonym = _next(chain, token)
            pseudonyms.append(pseudonym)
        return tuple(pseudonyms), chain

    def _tokens(self, tokens: tuple[int, ...], owners: "Sequence[Branch | None] | None") -> tuple[int, ...]:
        if owners is None:
            return (NO_TOKEN - 1,) * len(tokens)  # what the core will not take for a token either
        return tuple(
            STOP if owner is None else self._token(token, owner) for token, owner in zip(tokens, owners, strict=True)
        )

    def _token(self, token: int, owner: Branch) -> int:
        if token == NO_TOKEN:
            return NO_TOKEN
        spec = owner.request.spec
        beginnings = self._beginnings[spec.id]
        chain = self._branches.get(owner) or beginnings[owner.branch if spec.held else 0]
        self._branches[owner], pseudonym = _next(chain, token)
        return STOP if token in spec.stop_token_ids else pseudonym

    def _tenant(self, tenant: str) -> str:
        return self._name(b"tenant", tenant)

    def _salt(self, salt: str) -> str:
        return self._name(b"salt", salt)

    def _name(self, purpose: bytes, name: str) -> str:
        return self._hash(purpose, name).hex() if name else ""

    def _hash(self, purpose: bytes, text: str) -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=purpose).digest()


def _next(chain: bytes, token: int) -> tuple[bytes, int]:
    """What is remembered after a token, and its pseudonym; the one does not give away the other."""
    digest = blake2b(chain + token.to_bytes(8, "little", signed=True), digest_size=20).digest()
    return digest[:16], int.from_bytes(digest[16:], "little") >> 1 or 1
