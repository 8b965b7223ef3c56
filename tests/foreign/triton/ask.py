"""Asks through tritonclient, as any program of its users would: `ask.py ADDRESS MODEL PROMPT`. Prints what came as JSON.

Runs in an environment of its own, which has nothing of Octavo.
"""

import json
import queue
import sys
from importlib.metadata import version

import numpy as np
import tritonclient.grpc as triton

address, model, prompt = sys.argv[1:]
client = triton.InferenceServerClient(address)
parameters = {"temperature": 0, "max_tokens": 24}


def text_input(text: str) -> list:
    tensor = triton.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode()], dtype=object))
    return [tensor]


def text_of(result: object) -> str:
    output = result.as_numpy("text_output")
    return "" if output is None else output[0].decode(errors="replace")


def stream(limit: dict, timeout: float | None = None) -> dict:
    """All responses to one request, until the one that says it is the last, or an error."""
    came: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)), stream_timeout=timeout)
    client.async_stream_infer(
        model, text_input(prompt), enable_empty_final_response=True, request_id="1", parameters={**parameters, **limit}
    )
    pieces, error = [], None
    while True:
        result, error = came.get(timeout=60)
        if error is not None:
            break
        pieces.append(text_of(result))
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
    client.stop_stream(cancel_requests=True)
    return {"text": "".join(pieces), "pieces": len(pieces), "error": error and error.message()}


def cancel() -> int:
    """Reads three pieces of a long answer, and goes."""
    came: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    client.async_stream_infer(model, text_input(prompt), parameters={**parameters, "max_tokens": 60_000})
    pieces = [came.get(timeout=60) for _ in range(3)]
    client.stop_stream(cancel_requests=True)
    return len(pieces)


def refusal() -> str:
    try:
        client.infer(model, text_input(""), parameters=parameters)
    except triton.InferenceServerException as error:
        return f"{error.status()}: {error.message()}"
    return "none"


whole = client.infer(model, text_input(prompt), parameters=parameters)
answers = {
    "version": version("tritonclient"),
    "ready": client.is_server_live() and client.is_server_ready() and client.is_model_ready(model),
    "inputs": [tensor.name for tensor in client.get_model_metadata(model).inputs],
    "whole": text_of(whole),
    "stream": stream({}),
    "refused_in_stream": stream({"temperature": -1.0}),
    "late": stream({"max_tokens": 60_000}, timeout=2.0),
    "refused": refusal(),
    "cancelled_after": cancel(),
}
print(json.dumps(answers))
