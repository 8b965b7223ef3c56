"""What every process of Octavo refuses to do, whatever asks for it."""

import sys


def refuse_unpickling() -> None:
    """From now on, and for good: no pickle in this process may name a class or a function, so that none can call one.

    Nothing that Octavo reads is a pickle. If a library tries to read one all the same, it must not get far. Called by
    programs as they start, never on import.
    """
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[object, ...]) -> None:
    if event == "pickle.find_class":
        raise RuntimeError("unpickling is refused in this process")
