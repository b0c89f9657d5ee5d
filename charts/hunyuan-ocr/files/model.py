"""Fetch one commit of a model into a folder that pods share, or wait until it is there.

    python3 model.py fetch|wait ROOT REPOSITORY REVISION HUB [PATTERN TO LEAVE OUT]...

The model lands in ROOT/REPOSITORY/REVISION. That folder appears by one rename when every file is
there, so what can be seen is whole. A lock lets one writer at a time fetch; a fetch that was cut
off goes on where it ended. HUB is huggingface or modelscope.
"""

import fcntl
import os
import shutil
import sys
import time
from pathlib import Path

LOOK_EVERY_S = 2
SAY_EVERY_S = 60


def fetch(target: Path, repository: str, revision: str, hub: str, ignore: list[str]) -> None:
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{revision}.partial")
    with target.with_name(f"{revision}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return
        print(f"fetching {repository} at {revision} from {hub}", flush=True)
        if hub == "modelscope":
            from modelscope import snapshot_download
        else:
            from huggingface_hub import snapshot_download
        kwargs = {"ignore_patterns": ignore} if ignore else {}
        snapshot_download(repository, revision=revision, local_dir=str(partial), **kwargs)
        if not (partial / "config.json").is_file():
            raise SystemExit(f"{repository} at {revision} holds no config.json")
        shutil.rmtree(partial / ".cache", ignore_errors=True)
        os.sync()
        partial.rename(target)


def wait(target: Path) -> None:
    began = said = time.monotonic()
    while not target.is_dir():
        time.sleep(LOOK_EVERY_S)
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            print(f"{said - began:.0f} s: no {target} yet; see the model Job's log", flush=True)


def main() -> None:
    mode, root, repository, revision, hub, *ignore = sys.argv[1:]
    target = Path(root) / repository / revision
    if mode == "wait":
        wait(target)
    else:
        fetch(target, repository, revision, hub, ignore)
    print(f"{target} is complete", flush=True)


main()
