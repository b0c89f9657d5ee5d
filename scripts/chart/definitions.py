#!/usr/bin/env python3
"""Bring the CustomResourceDefinitions that the chart's objects need into the cache.

examples:
  definitions.py        prints the folder; `kubectl apply --server-side -f` takes it

They lie in the Go modules of KEDA and the Prometheus operator, each pinned by its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from scripts.chart.tools import ToolError, default_cache, go_program, ready  # noqa: E402


@dataclass(frozen=True, slots=True)
class Source:
    """Files in a Go module; `sum` is the module's hash, as a go.sum has it."""

    module: str
    sum: str
    patterns: tuple[str, ...]


SOURCES = (
    Source(
        "github.com/kedacore/keda/v2@v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        ("config/crd/bases/*.yaml",),
    ),
    Source(
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        (
            "example/prometheus-operator-crd/*_podmonitors.yaml",
            "example/prometheus-operator-crd/*_prometheusrules.yaml",
        ),
    ),
)


def provide(cache: Path | None = None) -> Path:
    """The folder that holds the definitions, a file each.

    Raises:
        ToolError: a module is not what its hash says.
        subprocess.CalledProcessError: Go failed; its own output says why.
    """
    cache = cache or default_cache()
    key = hashlib.sha256(repr(SOURCES).encode()).hexdigest()
    return ready(cache, "definitions", key, partial(_download, go_program(cache)))


def schemas(folder: Path) -> dict[str, Any]:
    """A JSON schema for each kind, which refuses fields that the kind does not have."""
    found = {}
    for path in folder.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text("utf-8"))["spec"]
        (version,) = (v for v in spec["versions"] if v["storage"])
        schema = _strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        found[spec["names"]["kind"]] = schema
    return found


def _strict(schema: Any) -> Any:
    """The same, closed to unknown fields wherever fields are listed."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(part) for name, part in schema.items()}
    if isinstance(pattern := strict.get("pattern"), str):
        # Go takes a flag anywhere, Python at the beginning alone.
        strict["pattern"] = re.sub(r"^\^(\(\?i\))", r"\1^", pattern)
    listed = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if listed and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def _download(go: str, out: Path) -> None:
    for source in SOURCES:
        done = subprocess.run(
            [go, "mod", "download", "-json", source.module],
            check=True,
            cwd=out,
            env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
            stdout=subprocess.PIPE,
            text=True,
        )
        module = json.loads(done.stdout)
        if module["Sum"] != source.sum:
            raise ToolError(f"{source.module} is {module['Sum']}, not {source.sum}")
        for pattern in source.patterns:
            for path in Path(module["Dir"]).glob(pattern):
                (out / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    print(provide())
