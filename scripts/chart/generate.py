#!/usr/bin/env python3
"""Write what is derived from the chart, or check that it is current.

python scripts/chart/generate.py           write goldens, k8s/ and the chart's list of settings
python scripts/chart/generate.py --check   exit 1 where one of them is stale
python scripts/chart/generate.py --docs    also values.schema.json and the chart's README.md, by
                                           programs built with Go; goes with --check too
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, from anywhere

from hunyuan_ocr.settings import Settings  # noqa: E402
from scripts.chart import kustomize  # noqa: E402
from scripts.chart.render import CHART, case, template, values_files  # noqa: E402
from scripts.chart.tools import tool  # noqa: E402

GOLDEN = ROOT / "tests" / "chart" / "golden"


def settings() -> dict[Path, str]:
    """Names of the service's settings, so that the chart can refuse others."""
    names = sorted(name.upper() for name in Settings.model_fields)
    return {CHART / "files" / "settings.txt": "\n".join(names) + "\n"}


def goldens() -> dict[Path, str]:
    return {GOLDEN / f"{case(values)}.yaml": template(values) for values in values_files()}


def docs() -> dict[Path, str]:
    """values.schema.json and README.md, made from the comments in values.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "values.schema.json"
        subprocess.run(
            [tool("helm-schema"), "--output", schema], cwd=CHART, check=True, capture_output=True
        )
        table = subprocess.run(
            [tool("helm-docs"), "--dry-run", "--sort-values-order=file", "--chart-search-root=."],
            cwd=CHART,
            check=True,
            capture_output=True,
            text=True,
        )
        return {
            CHART / "values.schema.json": schema.read_text("utf-8").rstrip() + "\n",
            CHART / "README.md": table.stdout.rstrip() + "\n",
        }


def write(files: dict[Path, str], check: bool) -> list[Path]:
    """The files that were stale; they are written unless `check`."""
    stale = [p for p, text in files.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in () if check else stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
    return stale


def orphans(files: dict[Path, str]) -> list[Path]:
    """Files that an earlier run wrote and this one would not."""
    return [path for path in GOLDEN.glob("*.yaml") if path not in files]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, report what is stale")
    parser.add_argument("--docs", action="store_true", help="schema and README too; needs Go once")
    options = parser.parse_args()
    # Rendering reads the settings' names and the schema, so these come first.
    first = settings() | (docs() if options.docs else {})
    stale = write(first, options.check)
    rendered = goldens() | kustomize.files()
    stale += write(rendered, options.check)
    for path in orphans(rendered):
        stale.append(path)
        if not options.check:
            path.unlink()
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is stale' if options.check else 'written'}")
    if options.check and stale:
        print("run `make format`, or `make format-chart` for the chart's schema and README")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
