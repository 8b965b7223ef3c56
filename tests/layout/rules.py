"""Who may import whom, and what nobody may call. Each rule takes a source and gives sentences, none if all is well."""

import ast
import sys
from collections.abc import Iterator

from tests.layout.tree import PACKAGES, Import, Source, imports

# Octavo's own packages that each may import, besides itself.
NEIGHBOURS: dict[str, set[str]] = {
    "octavo": set(),
    "octavo_client": {"octavo"},
    "octavo_scheduler": {"octavo"},
    "octavo_worker": {"octavo", "octavo_kernels"},
    "octavo_kernels": set(),
}

# Third-party packages with a home: the modules (and what lies below them) that alone may import them.
GRPC_SERVERS = ("batches", "service", "services", "outlet", "admin", "server", "endpoint", "access", "roles", "shield")
FRONTEND = ("frontend.server", "frontend.relay", "frontend.names")
SCHEDULER_SERVICES = (*GRPC_SERVERS, *FRONTEND, "compat", "traces", "web")
SERVICES = ("octavo_client", *(f"octavo_scheduler.{name}" for name in SCHEDULER_SERVICES))
GRPC_HOMES = (*SERVICES, "octavo_scheduler.errors")  # which holds the one table of status codes
HOMES: dict[str, tuple[str, ...]] = {
    "torch": ("octavo_kernels.reference", "octavo_kernels.triton", "octavo_worker.group.ranks"),
    "triton": ("octavo_kernels",),
    "grpc": GRPC_HOMES,
    "grpc_health": GRPC_HOMES,
    "grpc_reflection": GRPC_HOMES,
    "zmq": ("octavo_scheduler.link", "octavo_scheduler.frontend.link", "octavo_worker.link", "octavo_worker.curve"),
    "llguidance": ("octavo_scheduler.matching.grammars",),
}

# Protobuf types stop at these modules; `requests` checks what clients sent. The step protocol has homes of its own.
STEP_HOMES = ("octavo_scheduler.wire", "octavo_worker.batch", "octavo_worker.link")
READERS = ("requests", "prompts", "report", "description", "exposition")
SCHEDULER_MESSAGES = tuple(f"octavo_scheduler.{name}" for name in READERS)
FRONT_HOME = "octavo_scheduler.frontend.wire"
PROTOBUF_HOMES = (*STEP_HOMES, FRONT_HOME, *SERVICES, *SCHEDULER_MESSAGES, "octavo.v1", "octavo.foreign")

# The core is told the time, ids and seeds; it never asks for them.
NOT_IN_CORE = {"asyncio", "datetime", "multiprocessing", "os", "random", "secrets", "select", "socket", "subprocess"}
NOT_IN_CORE |= {"threading", "time", "uuid"}

UNSAFE_MODULES = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "builtins.eval", "builtins.exec", "torch.load"}
UNSAFE_METHODS = {"recv_pyobj", "send_pyobj", "read_pickle", "to_pickle"}


def broken_imports(source: Source) -> list[str]:
    """Imports that the table of the design does not allow."""
    reasons = ((each, _why_not(source.module, each)) for each in imports(source))
    return [f"{source.module}:{each.line} imports {each.name}: {reason}" for each, reason in reasons if reason]


def _why_not(module: str, imported: Import) -> str | None:
    package, target = module.partition(".")[0], imported.name.partition(".")[0]
    if target in PACKAGES and target != package and target not in NEIGHBOURS[package]:
        return f"{package} may import {sorted(NEIGHBOURS[package]) or 'none of the others'}"
    if target in HOMES and not lies_in(module, HOMES[target]):
        return f"{target} belongs to {', '.join(HOMES[target])}"
    if lies_in(module, ("octavo_scheduler.core",)):
        return _why_not_in_core(imported.name)
    if lies_in(imported.name, ("octavo.v1", "octavo.foreign", "google.protobuf")) and not lies_in(
        module, PROTOBUF_HOMES
    ):
        return f"protobuf types stop at {', '.join(PROTOBUF_HOMES)}"
    if "step_pb2" in imported.name and not lies_in(module, STEP_HOMES):
        return f"the step protocol stops at {', '.join(STEP_HOMES)}"
    if "front_pb2" in imported.name and module != FRONT_HOME:
        return f"the front protocol stops at {FRONT_HOME}"
    return None


def _why_not_in_core(name: str) -> str | None:
    root = name.partition(".")[0]
    if root in NOT_IN_CORE:
        return "the core asks nobody for time, ids, threads or chance"
    if root in sys.stdlib_module_names or lies_in(name, ("octavo_scheduler.core",)):
        return None
    return "the core uses the standard library alone"


def lies_in(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in homes)


def unsafe_code(source: Source) -> list[str]:
    """Everything that could run code found in data."""
    found = [(each.line, each.name) for each in imports(source) if _is_unsafe_import(each)]
    aliases = {each.alias: each.name for each in imports(source) if each.alias != each.name.partition(".")[0]}
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    found += [(call.lineno, name) for call in calls for name in _unsafe_names(call, aliases)]
    return [f"{source.module}:{line} uses {name}" for line, name in found]


def _is_unsafe_import(imported: Import) -> bool:
    return imported.name.partition(".")[0] in UNSAFE_MODULES or imported.name in UNSAFE_CALLS


def _unsafe_names(call: ast.Call, aliases: dict[str, str]) -> Iterator[str]:
    name = _dotted(call.func, aliases)
    if name in UNSAFE_CALLS or name.rpartition(".")[2] in UNSAFE_METHODS:
        yield name
    if any(keyword.arg == "allow_pickle" and not _is_false(keyword.value) for keyword in call.keywords):
        yield f"{name}(allow_pickle=...)"


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, aliases)}.{node.attr}"
    return aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
