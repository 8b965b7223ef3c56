"""Random JSON schemas, each with instances of every length that can still be said in a few hundred tokens."""

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]

NAMES = (
    *("name", "age", "city", "email", "price", "tags", "score", "items", "colour", "size", "owner", "notes", "count"),
    *("is_open", "address", "street", "phone", "year", "rating", "kind", "größe"),
)
WORDS = (
    "red",
    "green",
    "blue",
    "small",
    "large",
    "new",
    "used",
    "north",
    "south",
    "yes",
    "no",
    "maybe",
    "straße",
    "a b",
)
PATTERNS = (
    *(
        r"^[A-Z]{2}[0-9]{4}$",
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        r"^[a-z]+@[a-z]+\.(com|org)$",
        r"^(red|green) [a-z]{3,8}$",
    ),
    *(r"^\+?[0-9]{6,10}$", r"^[A-Z][a-z]{1,10}( [A-Z][a-z]{1,10})?$"),
)


def schema(draw: Random) -> Schema:
    """An object with some properties, up to three levels deep."""
    return an_object(draw, 3)


def anything(draw: Random, depth: int) -> Schema:
    kinds: list[Callable[[Random, int], Schema]] = [a_text, a_text, a_number, a_number, a_choice, a_flag]
    if depth:
        kinds += [an_object, an_array, a_union]
    return draw.choice(kinds)(draw, depth - 1)


def an_object(draw: Random, depth: int) -> Schema:
    names = draw.sample(NAMES, draw.randint(1, 4))
    required = [name for name in names if draw.random() < 0.7] or names[:1]
    properties = {name: anything(draw, depth) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def an_array(draw: Random, depth: int) -> Schema:
    fewest = draw.randint(0, 2)
    return {
        "type": "array",
        "items": anything(draw, depth),
        "minItems": fewest,
        "maxItems": fewest + draw.randint(0, 2),
    }


def a_union(draw: Random, depth: int) -> Schema:
    return {"anyOf": [a_flag(draw, 0), an_object(draw, 0), {"type": "null"}][: draw.randint(2, 3)]}


def a_text(draw: Random, depth: int) -> Schema:
    match draw.randrange(3):
        case 0:
            return {"type": "string", "pattern": draw.choice(PATTERNS)}
        case 1:
            fewest = draw.randint(0, 5)
            return {"type": "string", "minLength": fewest, "maxLength": fewest + draw.randint(1, 24)}
    return {"type": "string", "maxLength": 32}


def a_number(draw: Random, depth: int) -> Schema:
    low = draw.choice((-1000, -5, 0, 1, 18))
    high = low + draw.choice((1, 9, 100, 12345))
    match draw.randrange(3):
        case 0:
            return {"type": "integer", "minimum": low, "maximum": high}
        case 1:
            return {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
    return {"type": "number", "minimum": low, "maximum": high, "multipleOf": draw.choice((0.5, 0.25, 0.01))}


def a_choice(draw: Random, depth: int) -> Schema:
    values: list[object] = [*draw.sample(WORDS, draw.randint(1, 4)), draw.choice((7, None, True, "7"))]
    return {"const": values[0]} if draw.random() < 0.2 else {"enum": values}


def a_flag(draw: Random, depth: int) -> Schema:
    return {"type": "boolean"}
