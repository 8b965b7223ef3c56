"""What hatchling runs while it builds a wheel: compiles the C kernels, if there is a compiler."""

import runpy
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = Path("kernels/octavo_kernels/cpu")
PLACE = Path("octavo_kernels/cpu")


class CompiledKernels(BuildHookInterface[Any]):
    """An editable install has the library beside its sources, where it is compiled anew without installing again."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected; `version` is "standard" or "editable"."""
        source = Path(self.root) / KERNELS
        compiling = runpy.run_path(str(source / "compile.py"))
        self.folder = source if version == "editable" else Path(tempfile.mkdtemp())
        try:
            library = compiling["compile_library"](self.folder)
        except compiling["CannotBuild"] as error:
            reason = str(error).splitlines()[0]
            self.app.display_warning(f"Octavo is built without its CPU kernels and will be slow on CPUs: {reason}")
            return
        if version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"
            build_data["force_include"][str(library)] = str(PLACE / library.name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the wheel is written."""
        if version != "editable":
            shutil.rmtree(self.folder)


def platform_tag() -> str:
    """Of this machine, as in the name of a wheel."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
