"""How vLLM is started in this lane: one argument list and one environment per version.

Arguments in COMMON and VERSIONED are those of the chart; CPU_ONLY are what this lane adds to run
on two cores and no accelerator.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "models"
SERVED_NAMES = ("tencent/HunyuanOCR", "hunyuan-ocr")

# The native model (up to 0.28) wants Tencent's flat config and rotary layout, the Transformers
# backend its own; each checkpoint reads badly on the other side.
DEFAULT_MODEL = {"0.28.0": "tiny-hunyuan-vl-native", "0.32.0": "tiny-hunyuan-vl"}

COMMON = (
    "--host", "127.0.0.1",
    "--limit-mm-per-prompt", '{"image":1}',
    # Image-first prompts never share a prefix, and a cache between callers is one risk more.
    "--no-enable-prefix-caching",
    "--mm-processor-cache-gb", "0",
    # Images come as data URLs only; a name that cannot resolve closes the other way in.
    "--allowed-media-domains", "images.invalid",
    "--scheduling-policy", "priority",
    "--enable-request-id-headers",
    "--shutdown-timeout", "30",
    "--max-model-len", "8192",
    "--max-num-batched-tokens", "2048",
)  # fmt: skip

VERSIONED: dict[str, tuple[str, ...]] = {
    "0.28.0": (),
    "0.32.0": ("--max-num-queued-reqs", "256"),  # exists from 0.30
}

CPU_ONLY = ("--enforce-eager", "--distributed-executor-backend", "uni")

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
    "VLLM_MAX_IMAGE_PIXELS": "50000000",
    "VLLM_ENGINE_READY_TIMEOUT_S": "300",
    # The second model runner, which 0.28 prefers on a GPU, cannot run the native model.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # One thread: the tiny model gains nothing from two, and two wait for each other on busy cores.
    "OMP_NUM_THREADS": "1",
    # With the `uni` executor: EngineCore runs the model itself, two processes as on one GPU.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


# The service's own spans go by HTTP; vLLM's by gRPC unless it is told.
_OTLP_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine to be started. `python_path` holds the folders of plugins, () as shipped; spans go
    to the OTLP/HTTP collector at `otlp_endpoint`, if any."""

    version: str
    environment: Path
    model: Path
    port: int
    max_num_seqs: int
    python_path: tuple[Path, ...]
    otlp_endpoint: str | None = None

    def command(self) -> list[str]:
        python = str(self.environment / "bin" / "python")
        return [
            python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.model),
            "--served-model-name", *SERVED_NAMES,
            "--port", str(self.port),
            "--max-num-seqs", str(self.max_num_seqs),
            *COMMON, *VERSIONED[self.version], *CPU_ONLY,
            *(("--otlp-traces-endpoint", self.otlp_endpoint) if self.otlp_endpoint else ()),
        ]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The whole environment: nothing of the caller's PYTHONPATH or vLLM settings leaks in."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("VLLM_", "PYTHON"))
        }
        path = os.pathsep.join(map(str, self.python_path))
        plugins = {"PYTHONPATH": path} if path else {}
        traces = {_OTLP_PROTOCOL: "http/protobuf"} if self.otlp_endpoint else {}
        return inherited | CPU_ENVIRONMENT | ENVIRONMENT | plugins | traces
