"""Files and functions stay small, and nothing names the machine that it was written on."""

import ast
import io
import tokenize
from collections.abc import Iterator

from tests.layout.tree import ROOT, Source, files, sources

FILE_BUDGET = 250
FUNCTION_BUDGET = 40
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# Folders of one machine and hosts of package registries. A tilde keeps this file from finding itself.
SPELT = ["/wo~rk/", "/ro~ot/", "/opt/~wheels", "python~hosted", "registry.~npmjs", "py~pi.org"]
MACHINE_WORDS = [word.replace("~", "") for word in SPELT]


def code_lines(source: Source) -> set[int]:
    """Numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(source.tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def over_budget(source: Source) -> Iterator[str]:
    lines = code_lines(source)
    if len(lines) > FILE_BUDGET:
        yield f"{source.module} has {len(lines)} lines of code; {FILE_BUDGET} are allowed"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = len(lines.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            if length > FUNCTION_BUDGET:
                yield f"{source.module}.{node.name} has {length} lines of code; {FUNCTION_BUDGET} are allowed"


def test_files_and_functions_keep_their_budgets() -> None:
    own = [source for source in sources() if not source.module.startswith("tests.")]
    assert [sentence for source in own for sentence in over_budget(source)] == []


def test_a_long_file_and_a_long_function_are_found() -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(FILE_BUDGET))
    found = list(over_budget(Source("octavo_worker.long", f'"""Doc."""\n\n# why\ndef long():\n{body}\n')))
    assert len(found) == 2


def test_docstrings_comments_and_blank_lines_cost_nothing() -> None:
    text = '"""Two\nlines."""\n\n# comment\ndef f():\n    """Doc."""\n\n    return """three\nlines\nof text"""\n'
    assert len(code_lines(Source("octavo_worker.short", text))) == 4


def machine_words(text: str) -> list[str]:
    return [word for word in MACHINE_WORDS if word in text]


def test_no_file_names_the_machine_it_was_written_on() -> None:
    found = [(str(path.relative_to(ROOT)), machine_words(path.read_text(errors="replace"))) for path in files()]
    assert [(path, words) for path, words in found if words] == []


def test_a_machine_word_is_found() -> None:
    assert machine_words(f"see {MACHINE_WORDS[0]}main") == MACHINE_WORDS[:1]
