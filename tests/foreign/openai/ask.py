"""Asks through the openai package, as any program of its users would: `ask.py BASE_URL`. Prints what came as JSON.

Runs in an environment of its own, which has nothing of Octavo.
"""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)
messages = [{"role": "user", "content": "What is the capital of France?"}]
prompt = "The capital of France is"
long_answer = {
    "model": "smollm2",
    "prompt": prompt,
    "temperature": 0,
    "max_tokens": 4000,
    "extra_body": {"ignore_eos": True},
}


def chat() -> dict:
    answer = client.chat.completions.create(model="smollm2", messages=messages, temperature=0, max_tokens=24)
    choice = answer.choices[0]
    return {"text": choice.message.content, "reason": choice.finish_reason, "usage": usage(answer.usage)}


def chat_stream() -> dict:
    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            messages=messages,
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return {
        "text": "".join(choice.delta.content or "" for choice in choices),
        "reason": choices[-1].finish_reason,
        "usage": usage(chunks[-1].usage),
        "pieces": sum(bool(choice.delta.content) for choice in choices),
    }


def completion() -> dict:
    answer = client.completions.create(model="smollm2", prompt=prompt, temperature=0, max_tokens=12, stop=["."])
    return {"text": answer.choices[0].text, "reason": answer.choices[0].finish_reason, "usage": usage(answer.usage)}


def completion_stream() -> dict:
    chunks = client.completions.create(
        model="smollm2", prompt=prompt, temperature=0, max_tokens=12, stop=["."], stream=True
    )
    return {"text": "".join(choice.text for chunk in chunks for choice in chunk.choices)}


def several() -> dict:
    answer = client.completions.create(model="smollm2", prompt=prompt, n=3, seed=5, max_tokens=8)
    return {"texts": [choice.text for choice in sorted(answer.choices, key=lambda choice: choice.index)]}


def chat_logprobs() -> dict:
    """Of each token: its text, its log-probability, and those of the three most likely ones; whole and streamed."""
    asked = {"model": "smollm2", "messages": messages, "temperature": 0, "max_tokens": 24}
    asked |= {"logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    pieces = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    return {
        "text": whole.choices[0].message.content,
        "whole": positions(whole.choices[0].logprobs),
        "streamed": [position for piece in pieces for position in positions(piece)],
    }


def positions(logprobs: object) -> list:
    return [
        [each.token, each.logprob, [[best.token, best.logprob] for best in each.top_logprobs]]
        for each in logprobs.content or []
    ]


def refusals() -> dict:
    asked = {
        "another model": {"model": "another", "prompt": "x"},
        "too long": {"model": "smollm2", "prompt": "x", "max_tokens": 1_000_000},
    }
    return {name: refusal(parameters) for name, parameters in asked.items()}


def refusal(parameters: dict) -> dict:
    try:
        client.completions.create(**parameters)
    except openai.APIStatusError as error:
        return {"kind": type(error).__name__, "status": error.status_code, "message": str(error)}
    return {"kind": "none"}


def leave() -> dict:
    """Reads three pieces of a long answer, and goes."""
    stream = client.completions.create(**long_answer, stream=True)
    pieces = [next(iter(stream)).choices for _ in range(3)]
    stream.close()
    return {"pieces": len(pieces)}


def late() -> dict:
    """Waits a second for a long answer, and gives up."""
    try:
        client.with_options(timeout=1.0).completions.create(**long_answer)
    except openai.APITimeoutError as error:
        return {"kind": type(error).__name__}
    return {"kind": "none"}


def usage(counted: object) -> list[int]:
    return [counted.prompt_tokens, counted.completion_tokens, counted.total_tokens]


models = [model.id for model in client.models.list()]
parts = (chat, chat_stream, completion, completion_stream, several, chat_logprobs, refusals, leave, late)
print(json.dumps({"version": openai.__version__, "models": models, **{part.__name__: part() for part in parts}}))
