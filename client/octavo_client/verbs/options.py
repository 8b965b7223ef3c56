"""Flags that several verbs share."""

import argparse
from pathlib import Path
from typing import Any

from octavo_client.addresses import DEFAULT_ADDRESS
from octavo_client.client import AsyncClient
from octavo_client.errors import ConfigError
from octavo_client.params import SamplingParams
from octavo_client.sync import Client

NUMBERS: dict[str, tuple[type[int] | type[float], str]] = {
    "--max-tokens": (int, "most tokens to generate (default: as many as fit)"),
    "--min-tokens": (int, "no end before this many tokens"),
    "--temperature": (float, "0 is greedy (default: 0)"),
    "--top-p": (float, "keep the smallest set of tokens with this much probability"),
    "--top-k": (int, "keep the k most likely tokens"),
    "--min-p": (float, "drop tokens less likely than this share of the most likely one"),
    "--repetition-penalty": (float, "above 1 makes repetition less likely"),
    "--presence-penalty": (float, "taken off the logit of tokens already answered"),
    "--frequency-penalty": (float, "the same, once for each time"),
    "--seed": (int, "same seed, same answer"),
}
SERVER_DEFAULTS: dict[str, Any] = dict.fromkeys(
    ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which server to ask, and how."""
    group = parser.add_argument_group("server")
    group.add_argument("--address", default=DEFAULT_ADDRESS, help="HOST:PORT or unix:PATH (default: %(default)s)")
    group.add_argument("--ca-file", help="certificates to trust, PEM; turns TLS on for a local address too")
    group.add_argument("--token-file", help="file with the bearer token")
    group.add_argument("--cert-file", help="this client's own certificate, PEM, for a server that asks for it")
    group.add_argument("--key-file", help="its private key, PEM")
    group.add_argument("--served-model", default="", metavar="NAME", help="needed only where several are served")
    group.add_argument("--timeout", type=float, help="seconds for the whole call (default: no limit)")


def open_client(args: argparse.Namespace) -> Client:
    """Opens the client that the flags of add_server() describe."""
    return Client(args.address, model=args.served_model, **_files(args))


def open_async_client(args: argparse.Namespace) -> AsyncClient:
    """The same within an event loop."""
    return AsyncClient(args.address, model=args.served_model, **_files(args))


def _files(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("ca_file", "token_file", "cert_file", "key_file")}


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that shape an answer."""
    group = parser.add_argument_group("answer")
    for flag, (kind, text) in NUMBERS.items():
        group.add_argument(flag, type=kind, help=text)
    group.add_argument("--stop", action="append", metavar="TEXT", help="ends the answer; may be given several times")
    group.add_argument("--ignore-eos", action="store_true", help="go on past the model's end token")
    group = parser.add_argument_group("shape of the answer, one of these").add_mutually_exclusive_group()
    group.add_argument(
        "--json-schema", metavar="FILE", help="the answer is JSON that satisfies the schema in this file"
    )
    group.add_argument("--regex", metavar="PATTERN", help="the answer matches this regular expression")
    group.add_argument(
        "--grammar", metavar="FILE", help="the answer is a text of the grammar in this file (Lark syntax)"
    )
    group.add_argument(
        "--choice", action="append", metavar="TEXT", help="the answer is one of these; given several times"
    )


def _read(file: str | None) -> str | None:
    """What stands in it. Raises ConfigError."""
    try:
        return None if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Returns the parameters that the flags of add_sampling() describe; the server decides the rest."""
    names = [flag.removeprefix("--").replace("-", "_") for flag in NUMBERS]
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    return SamplingParams(
        **{**SERVER_DEFAULTS, "temperature": 0.0, "max_tokens": None, **given},
        json_schema=_read(args.json_schema),
        regex=args.regex,
        grammar=_read(args.grammar),
        choice=args.choice,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
    )
