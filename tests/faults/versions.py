"""Workers of another minor version: `tests.faults.worker KIND VERSION 1 LOG FLAGS…`.

`oldest` speaks 1.0, which knows no forks, and leaves out what it may. `newer` speaks the minor version after ours: there is
something that we do not know in each message of it.
"""

from octavo.v1 import step_pb2 as wire
from octavo_worker.batch import PROTOCOL_MINOR
from octavo_worker.link import Link

VERSIONS = ("oldest", "newer")
MEASURED = {
    "hello": ("kernels", "batch_invariant", "copy_bytes_per_second", "prefill_tokens_per_second"),
    "result": ("execute_seconds", "swapped_bytes", "swap_seconds"),
}
"""What may be missing."""
UNKNOWN = bytes.fromhex("c8bb02 07 d2bb02 05 6f74686572")
"""Field 4985, a number, and field 4986, five bytes."""


def speak(link: Link, version: str) -> None:
    """From now on, as far as a scheduler can tell."""
    send, receive = link.send, link.receive
    minor = 0 if version == "oldest" else PROTOCOL_MINOR + 1
    change = grow_old if version == "oldest" else renew

    def speaking(message: wire.WorkerMessage) -> None:
        if message.HasField("hello"):
            message.hello.protocol_minor = minor
        change(message)
        send(message)

    def hearing(seconds: float) -> wire.SchedulerMessage | None:
        message = receive(seconds)
        if message is not None and message.HasField("welcome"):
            agreed = message.welcome.protocol_minor
            assert agreed == min(minor, PROTOCOL_MINOR), f"minor version {agreed} is agreed upon"
        if message is not None and message.HasField("plan") and version == "oldest":
            assert not message.plan.HasField("forks"), "the oldest workers know no forks"
        return message

    link.send, link.receive = speaking, hearing  # type: ignore[method-assign]


def grow_old(message: wire.WorkerMessage) -> None:
    """Without what it may lack."""
    said = message.WhichOneof("body")
    body = getattr(message, str(said))
    for name in MEASURED.get(str(said), ()):
        body.ClearField(name)


def renew(message: wire.WorkerMessage) -> None:
    """With fields of the future, in the envelope and in what it holds."""
    said = message.WhichOneof("body")
    assert said is not None
    getattr(message, said).MergeFromString(UNKNOWN)
    message.MergeFromString(UNKNOWN)
