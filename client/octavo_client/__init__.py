"""Octavo for Python: `LLM` runs a model in this program, `Client` and `AsyncClient` talk to a running server."""

from octavo_client import errors
from octavo_client.client import AsyncClient
from octavo_client.llm import LLM
from octavo_client.params import SamplingParams
from octavo_client.sync import Client

__all__ = ["LLM", "AsyncClient", "Client", "SamplingParams", "errors"]
