"""`python -m octavo_scheduler.matching DESCRIPTOR`: answers what is asked on a socket, until it is closed.

    in    {"vocab_size", "end_token_ids"}, tokenizer as JSON            once
    out   {}
    in    {"drop": [key], "begin": [[key, kind, text, tokens]], "step": [[key, tokens]]}
    out   {"masks": [key], "errors": [[key, sentence]]}, a mask for each of the keys

A message is two lengths, a head in JSON and a body of bytes (`frames`).
"""

import resource
import signal
import socket
import sys
from contextlib import closing

from octavo.audit import refuse_unpickling

from octavo_scheduler.limits import MATCHING_MEMORY_BYTES
from octavo_scheduler.matching.frames import Line
from octavo_scheduler.matching.grammars import Grammars


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its scheduler
    resource.setrlimit(resource.RLIMIT_AS, (MATCHING_MEMORY_BYTES, MATCHING_MEMORY_BYTES))
    with closing(Line(socket.socket(fileno=descriptor))) as line:
        head, tokenizer = line.receive()
        grammars = Grammars(tokenizer.decode(), head["vocab_size"], head["end_token_ids"])
        line.send({})
        while True:
            head, _ = line.receive()
            line.send(*grammars.answer(head))


if __name__ == "__main__":
    refuse_unpickling()
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("this program is started by a scheduler, which gives it a socket")
    try:
        main(int(sys.argv[1]))
    except (EOFError, ConnectionError):
        sys.exit(0)
