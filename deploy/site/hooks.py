"""What the site has that the repository has not: a reference made from code and schema. mkdocs calls these functions."""

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File

from deploy.site.command_line import command_line
from deploy.site.schema import api, other_apis, step_protocol

PAGES = {"command-line": command_line, "api": api, "other-apis": other_apis, "step-protocol": step_protocol}
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#:]+)(#[^)]*)?\)")


def on_files(files: Any, *, config: Any) -> None:
    """Adds the pages of the reference."""
    for name, make in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Links to files of the repository that are no pages stay as their words."""
    here = posixpath.dirname(page.file.src_uri)

    def keep(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[2]))
        return match[0] if files.get_file_from_path(target) else match[1]

    return LINK.sub(keep, markdown)
