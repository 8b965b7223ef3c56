"""The reference of the command line: what each verb says with --help."""

import os
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO

from octavo_client import cli
from octavo_client.programs import PROGRAMS

COLUMNS = "110"


def command_line() -> str:
    """The page, in Markdown."""
    lines = ["# Command line", "", "What `octavo VERB --help` says.", ""]
    for verb in (*cli.VERBS, *PROGRAMS):
        lines += [f"## octavo {verb}", "", "```text", help_of(verb).rstrip(), "```", ""]
    return "\n".join(lines)


def help_of(verb: str) -> str:
    """The words of one verb."""
    said = StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with redirect_stdout(said), suppress(SystemExit):
            ask_for_help(verb)
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    return said.getvalue()


def ask_for_help(verb: str) -> None:
    if verb not in PROGRAMS:
        cli.main([verb, "--help"])
        return
    name = PROGRAMS[verb][0]
    module = import_module(name if "." in name else f"{name}.__main__")
    module.main(["--help"])
