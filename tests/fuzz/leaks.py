"""What no sentence to a client may hold: places in the file system or in memory, stack traces, names of classes."""

import builtins
import re

PYTHON = {name for name in dir(builtins) if name.endswith(("Error", "Exception", "Warning"))}
LEAKS = (
    re.compile(r"Traceback|File \"|, line \d+"),
    re.compile(r"(?<![\w.])/(?:home|root|usr|opt|tmp|var|etc|work|proc|srv|mnt)\b"),
    re.compile(r"\b0x[0-9a-f]{6,}\b"),
    re.compile(r"<(?:class|function|module|object|bound|built-in)\b|\bobject at\b"),
    re.compile(r"\b(?:octavo_\w+|site-packages|jinja2|tokenizers|grpc\._\w+)\b"),
    re.compile(rf"\b(?:{'|'.join(sorted(PYTHON))})\b"),
)
MOST_BYTES = 1024


def leaks(sentence: str, sent: str = "") -> list[str]:
    """What is wrong with it. What the client sent itself may come back, cut short."""
    found = [match[0] for pattern in LEAKS if (match := pattern.search(sentence)) and match[0] not in sent]
    if len(sentence.encode()) > MOST_BYTES:
        found.append(f"it has {len(sentence.encode())} bytes")
    if any(ord(letter) < 32 for letter in sentence):
        found.append("it has control characters")
    return found
