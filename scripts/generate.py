"""Write the generated documents, or check that they are current.

python scripts/generate.py          write docs/settings.md, docs/openapi.json, README's table
python scripts/generate.py --check  exit 1 where one of them is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hunyuan_ocr.app import build
from hunyuan_ocr.errors import error_classes
from hunyuan_ocr.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- generated: errors -->", "<!-- end of generated: errors -->"


def settings_table() -> str:
    """Every setting with its default and meaning, as a Markdown document."""
    rows = ["# Settings", "", "Generated from `service/hunyuan_ocr/settings.py`.", ""]
    rows += ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        if field.default_factory is not None:
            default = {"spool_directory": "the system's temporary folder"}.get(name, "one per core")
        else:
            default = "" if field.default is None else f"`{field.default}`"
        rows.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def errors_table() -> str:
    """Every code with its status and what the caller should do."""
    rows = (
        f"| {error.status} | `{error.code}` | {error.title} | {error.advice} |"
        for error in sorted(error_classes(), key=lambda e: (e.status, e.code))
    )
    return "\n".join(("| status | code | meaning | what to do |", "|---|---|---|---|", *rows))


def readme() -> str:
    text = README.read_text("utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{errors_table()}\n{END}{after}"


def openapi() -> str:
    """The OpenAPI document that a service with default settings publishes."""
    document = build(Settings()).openapi()
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report what is stale")
    check = parser.parse_args().check
    stale = []
    for path, text in (
        (ROOT / "docs/settings.md", settings_table()),
        (ROOT / "docs/openapi.json", openapi()),
        (README, readme()),
    ):
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT))
        if not check:
            path.write_text(text, "utf-8")
    for path in stale:
        print(f"{path} {'is stale: run `make format`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
