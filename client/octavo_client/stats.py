"""What a model served by this program is doing, under the names that users of other engines know."""

from octavo_client.client import AsyncClient
from octavo_client.sync import run
from octavo_client.verbs import status


class Engine:
    """`LLM.llm_engine`."""

    def __init__(self, client: AsyncClient) -> None:
        self.stat_logger = StatLogger(client)


class StatLogger:
    """`LLM.llm_engine.stat_logger`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def print_stats(self) -> None:
        """Prints what workers, pages and requests are doing, as `octavo status` does."""
        status.show(run(self._client.status()))
