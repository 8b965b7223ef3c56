"""docker-compose.yml as Compose itself resolves it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_compose(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run docker-compose with these OCTAVO_... variables and none of the caller's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OCTAVO_", "COMPOSE_"))}
    command = [str(Path(sys.executable).with_name("docker-compose")), *arguments]
    return subprocess.run(command, cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True)


def resolve(*flags: str, **variables: str) -> dict[str, Any]:
    """The whole configuration, variables filled in."""
    result = run_compose(*flags, "config", "--format", "json", **{"OCTAVO_MODEL": "/srv/model", **variables})
    assert result.returncode == 0, result.stderr
    configuration: dict[str, Any] = json.loads(result.stdout)
    return configuration
