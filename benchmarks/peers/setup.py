"""Install the peers: LiteLLM into an environment of its own, nginx from the distribution."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_LITELLM = Path(__file__).with_name("litellm.txt")
_MARKER = ".installed"


def litellm_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hunyuan-ocr" / "peers" / "litellm"


def install_litellm() -> Path:
    """The command `litellm`. Raises OSError and subprocess.CalledProcessError."""
    home = litellm_home()
    marker = home / _MARKER
    wanted = hashlib.sha256(_LITELLM.read_bytes()).hexdigest()
    command = home / "bin" / "litellm"
    if not (command.exists() and marker.exists() and marker.read_text() == wanted):
        _say("installing the LiteLLM proxy, about 600 MB")
        home.parent.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", home)
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "pip", "install", "--python", home / "bin" / "python", "--no-deps",
             "--require-hashes", "--compile-bytecode", "-r", _LITELLM)  # fmt: skip
        marker.write_text(wanted)
    return command


def install_nginx() -> Path:
    """The command `nginx`. Raises OSError and subprocess.CalledProcessError."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    if shutil.which("nginx", path=path) is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise OSError("nginx is not installed, and only root could do that")
        _say("installing nginx")
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "nginx")
    found = shutil.which("nginx", path=path)
    if found is None:
        raise OSError("nginx was installed and is not there")
    return Path(found)


def _run(*command: str | Path) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
