"""How many rows of a model's head are tokens: some models have more of them, so that their number is a round one."""

import json
from pathlib import Path


def num_tokens(model: Path) -> int | None:
    """As the tokenizer beside a model counts them; None where there is none that can be read."""
    try:
        content = json.loads((model / "tokenizer.json").read_bytes())
        known = content["model"]["vocab"]
        ids = [int(number) for number in (known.values() if isinstance(known, dict) else range(len(known)))]
        return 1 + max([*ids, *(int(token["id"]) for token in content.get("added_tokens", ()))])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
