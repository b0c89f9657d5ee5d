"""The models that come with the rapidocr package: none is ever downloaded.

The package, its runtime and OpenCV are the extra `embedded`. An image without them is a third as
large; the service before vLLM then neither tells blank pages nor turns pages on its own.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@cache
def installed() -> bool:
    return all(map(find_spec, ("rapidocr", "onnxruntime", "cv2")))


def model_path(name: str) -> Path:
    """Where the bundled model file `name` is; raises FileNotFoundError where it is missing."""
    spec = find_spec("rapidocr")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("rapidocr is not installed")
    path = Path(spec.submodule_search_locations[0]) / "models" / name
    if not path.is_file():
        raise FileNotFoundError(f"the bundled model {name} is missing")
    return path


def session(model: Path, threads: int) -> Any:
    """An onnxruntime session on the CPU; the numeric library is imported here, in a worker."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The detector's last layers compute denormal numbers, a hundred times slower than others.
    # onnxruntime obeys for the calling thread in the first session of a process only.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
