"""Rewrite the pinned requirement files with hashes: `python lock.py` after editing a version.

Each pin gets the hash of the one file that this platform installs (CPython 3.11, x86-64 Linux), as
the package index states it. No address is recorded: pip's own configuration decides where from.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements")
PIN = re.compile(r"^([A-Za-z0-9._-]+==[^\s\\]+)")


def pins(text: str) -> list[str]:
    return [match[1] for line in text.splitlines() if (match := PIN.match(line))]


def hashes(wanted: list[str]) -> dict[str, str]:
    """`name==version` -> sha256, in the order given."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--only-binary", ":all:", "--report", "-", *wanted]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for item in json.loads(output)["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        found[name] = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return {pin: found[re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower()] for pin in wanted}


def relock(path: Path) -> None:
    text = path.read_text()
    head = [line for line in text.splitlines() if line.startswith(("#", "-r "))]
    locked = [f"{pin} \\\n    --hash=sha256:{sha}" for pin, sha in hashes(pins(text)).items()]
    path.write_text("\n".join(head + locked) + "\n")


if __name__ == "__main__":
    for requirement_file in sorted(REQUIREMENTS.glob("*.txt")):
        relock(requirement_file)
