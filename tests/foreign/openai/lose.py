"""Streams while a scheduler dies, and asks again after it: `lose.py BASE_URL MODEL STREAMS ANSWERS`. Prints JSON.

Says "begun" once all streams have begun, and asks for the answers when it reads a line.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import openai

url, model, streams, answers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
asked = {"model": model, "temperature": 0, "extra_body": {"ignore_eos": True}}
begun = Barrier(streams + 1)


def stream(number: int) -> str | None:
    ending, pieces = None, 0
    try:
        for chunk in client.completions.create(**asked, prompt=f"{number} sheets", max_tokens=1000, stream=True):
            pieces += 1
            if pieces == 3:
                begun.wait(60)
            for choice in chunk.choices:
                ending = choice.finish_reason or ending
    except openai.APIError as error:
        ending = type(error).__name__
    return ending


with ThreadPoolExecutor(streams) as threads:
    running = [threads.submit(stream, number) for number in range(streams)]
    begun.wait(60)
    print("begun", flush=True)
    sys.stdin.readline()
    counts = [
        client.completions.create(**asked, prompt=f"page {number}", max_tokens=4).usage.completion_tokens
        for number in range(answers)
    ]
    print(json.dumps({"streams": [each.result() for each in running], "answers": counts}))
