import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from octavo_client import Client, errors, results
from octavo_client.local import LocalServer

from tests.patience import PATIENCE


@pytest.fixture
def client(local_server: LocalServer) -> Iterator[Client]:
    with Client(local_server.address) as running:
        yield running


def test_the_calls_are_those_of_the_async_client(client: Client) -> None:
    messages = [{"role": "user", "content": "good day"}]
    assert client.generate("one two").outputs[0].text == "ONE TWO "
    assert client.chat(messages).outputs[0].text == "GOOD DAY "
    assert [type(event) for event in client.stream("one")] == [results.Start, results.Delta, results.End]
    assert len(list(client.chat_stream(messages))) == 4
    assert client.list_models()[0].name == "double"
    assert client.status().model == "double"


def test_errors_come_through(client: Client) -> None:
    with pytest.raises(errors.ModelNotFound, match="no such model"):
        client.generate("fail NOT_FOUND no such model")
    with pytest.raises(errors.DeadlineExceeded):
        list(client.stream("hang", timeout=0.2))


def test_a_stream_may_be_left_early(client: Client) -> None:
    for event in client.stream("hang"):
        if isinstance(event, results.Delta):
            assert event.text == "HANG "
            break
    assert client.generate("still here").outputs[0].text == "STILL HERE "


def test_several_threads_may_share_a_client(client: Client) -> None:
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        texts[number] = client.generate(f"n{number}").outputs[0].text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"N{number} " for number in range(8)}


@pytest.mark.parametrize("kind", ["whole", "stream"])
def test_ctrl_c_while_waiting_ends_the_call_and_the_client_goes_on(client: Client, kind: str) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.generate("hang") if kind == "whole" else list(client.stream("hang"))
    timer.join()
    assert client.generate("one").outputs[0].text == "ONE "


@pytest.mark.parametrize("last", ["", "client.close()"])
def test_a_program_may_end_with_a_stream_half_read_and_makes_no_noise(local_server: LocalServer, last: str) -> None:
    program = f"""
from octavo_client import Client
client = Client({local_server.address!r})
events = client.stream("hang")
next(events), next(events)
{last}
"""
    words = [sys.executable, "-c", program]
    several = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for process in several:  # at once, so that they are slow enough to meet the end half-way
        assert (process.communicate(timeout=PATIENCE)[1], process.returncode) == ("", 0)
