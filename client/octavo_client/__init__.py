"""Octavo for Python: `LLM` runs a model in this program, `Client` and `AsyncClient` talk to a running server.

Each is imported when it is first asked for, so that `octavo serve` starts its children before gRPC comes in.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo_client import errors
    from octavo_client.async_engine import AsyncEngineArgs, AsyncLLMEngine, EngineArgs
    from octavo_client.client import AsyncClient
    from octavo_client.llm import LLM
    from octavo_client.params import SamplingParams
    from octavo_client.sync import Client

__all__ = [
    "LLM",
    "AsyncClient",
    "AsyncEngineArgs",
    "AsyncLLMEngine",
    "Client",
    "EngineArgs",
    "SamplingParams",
    "errors",
]
HOMES = {
    "LLM": "llm",
    "AsyncClient": "client",
    "AsyncEngineArgs": "async_engine",
    "AsyncLLMEngine": "async_engine",
    "Client": "sync",
    "EngineArgs": "async_engine",
    "SamplingParams": "params",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("octavo_client.errors")
    if name in HOMES:
        return getattr(import_module(f"octavo_client.{HOMES[name]}"), name)
    raise AttributeError(f"module 'octavo_client' has no attribute {name!r}")
