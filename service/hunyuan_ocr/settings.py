"""Settings: environment variables with the prefix `HYOCR_`, read once, frozen.

The prefix is not `HUNYUAN_OCR_`, because Kubernetes injects `HUNYUAN_OCR_PORT` and friends
for a Service of that name. The table in docs/settings.md is generated from this class.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hunyuan_ocr.tasks.catalogue import Generation

PREFIX = "HYOCR_"
_HTTP_URL = r"^https?://[^/\s]+"


class SettingsError(ValueError):
    """The environment does not make valid settings; the message says what to fix."""


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Settings(BaseSettings):
    """Every knob of the service; units stand in the names."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    # Where it listens
    host: str = Field("127.0.0.1", description="Address the API listens on; 0.0.0.0 in a pod.")
    port: int = Field(7860, ge=0, le=65535, description="Port of the API and the web page.")
    management_host: str = Field(
        "127.0.0.1", description="Address of the management port (probes and metrics)."
    )
    management_port: int = Field(
        9180, ge=0, le=65535, description="Management port; never expose it to callers."
    )
    control_socket: Path | None = Field(
        None, description="Unix socket that `hunyuan-ocr drain` speaks to; unset: none."
    )

    # The engine
    engine: Literal["embedded", "vllm"] = Field(
        "embedded", description="Which engine reads pages: `embedded` (CPU) or `vllm`."
    )
    embedded_workers: int = Field(
        default_factory=_cores, ge=1, le=256, description="Processes of the embedded engine."
    )
    embedded_threads_per_worker: int = Field(
        1, ge=1, le=64, description="Threads in each process of the embedded engine."
    )
    embedded_page_timeout_s: float = Field(
        60.0, gt=0, le=600, description="Longest that the embedded engine may read one page."
    )
    embedded_max_megapixels: float = Field(
        4.0, gt=0, le=50, description="Larger pages are scaled down to this for the CPU engine."
    )
    embedded_high_megapixels: float = Field(
        12.0, gt=0, le=50, description="The same for callers who ask for `detail=high`."
    )

    vllm_url: str = Field(
        "http://127.0.0.1:8000",
        pattern=_HTTP_URL,
        description="Where vLLM listens; on the pod's own loopback.",
    )
    vllm_generation: Generation = Field(
        "1.5", description="Release of HunyuanOCR served, which decides prompts and sampling."
    )
    vllm_concurrency: int = Field(
        16, ge=1, le=4096, description="Pages in vLLM at once; its --max-num-seqs."
    )
    vllm_concurrency_floor: int = Field(
        8,
        ge=1,
        description="An overloaded vLLM still gets this many pages; as `vllm_concurrency`: static.",
    )
    vllm_slot_tokens: int = Field(
        2048,
        ge=64,
        description="Tokens of the KV cache that one page of the concurrency may take; more count "
        "as several. All slots together must fit into the cache.",
    )
    vllm_min_pixels: int = Field(
        512 * 512, ge=1024, description="`min_pixels` of the model's preprocessor_config.json."
    )
    vllm_max_pixels: int = Field(
        2048 * 2048, ge=1024, description="`max_pixels` of the model's preprocessor_config.json."
    )
    vllm_page_pixels: int = Field(
        1024 * 1024, ge=1024, description="Pages are scaled down to this many pixels for vLLM."
    )
    vllm_high_pixels: int = Field(
        3_400_000, ge=1024, description="The same for callers who ask for `detail=high`."
    )
    vllm_encoder_tokens: int = Field(
        8192, ge=64, description="Tokens one image may take; vLLM's --max-num-batched-tokens."
    )
    vllm_max_output_tokens: int = Field(
        4096, ge=1, description="Longest answer to a page, where the context leaves that much."
    )
    vllm_hung_after_s: float = Field(
        10.0, gt=0, description="vLLM is taken for hung when it makes no step for this long."
    )
    engine_hung_limit_s: float = Field(
        60.0,
        gt=0,
        description="vLLM dead or hung for this long fails `/engine/livez`, to be restarted.",
    )
    isolation_check: Literal["enforce", "warn"] = Field(
        "enforce",
        description="Whether vLLM must pass the isolation self-test; `warn` is for benchmarks.",
    )

    # Preparing pages
    decode_workers: int = Field(
        default_factory=_cores, ge=1, le=64, description="Processes that decode and render pages."
    )
    decode_worker_memory_megabytes: int = Field(
        2048, ge=1024, description="Address space of each decode process."
    )
    pages_per_decode_worker: int = Field(
        500, ge=1, description="Pages after which a decode process is replaced by a fresh one."
    )
    decode_timeout_s: float = Field(
        15.0, gt=0, le=600, description="Longest that decoding or rendering one page may take."
    )
    max_tiles: int = Field(
        12,
        ge=1,
        le=64,
        description="Parts that a long page is cut into at most, each a turn of the engine.",
    )
    pdf_dpi: int = Field(200, ge=36, le=600, description="Resolution PDF pages are rendered at.")
    spool_directory: Path = Field(
        default_factory=lambda: Path(tempfile.gettempdir()),
        description="Where documents of several pages wait on disk while they are read.",
    )

    # Limits on what enters
    max_body_megabytes: float = Field(
        64.0, gt=0, le=1024, description="Largest request body, counted while it arrives."
    )
    max_bodies_megabytes: float = Field(
        512.0,
        gt=0,
        description="All request bodies in memory together; one more is refused with 429. One "
        "caller may have four fifths of it.",
    )
    body_timeout_s: float = Field(30.0, gt=0, description="Longest that a body may take to arrive.")
    max_image_megapixels: float = Field(
        64.0, gt=0, le=1000, description="Largest page, judged by its header before decoding."
    )
    max_pages: int = Field(500, ge=1, description="Most pages read for one request.")
    max_instruction_chars: int = Field(
        2000, ge=0, description="Longest instruction and longest field name."
    )
    max_connections: int = Field(
        4096, ge=1, description="Connections to the API at once; one more is closed."
    )
    max_header_kilobytes: int = Field(
        64, ge=8, le=1024, description="Largest headers of a request; larger ones get 431."
    )

    # Who gets the engine
    interactive_max_queue_s: float | None = Field(
        None,
        gt=0,
        description="Interactive work that may wait, in seconds of the whole engine; unset: "
        "1 with vLLM, 10 with the embedded engine.",
    )
    standard_max_queue_s: float | None = Field(
        None,
        gt=0,
        description="Standard work that may wait, in seconds of the whole engine; unset: "
        "8 with vLLM, 40 with the embedded engine.",
    )
    batch_max_queue_s: float | None = Field(
        None,
        gt=0,
        description="Batch work that may wait, in seconds of the whole engine; unset: "
        "240 with vLLM, 400 with the embedded engine.",
    )
    interactive_reserved_slots: int = Field(
        7, ge=0, description="Slots kept free of batch; always fewer than half of all."
    )
    degrade_top: Literal["none", "shrink_batch", "lower_pixels", "cpu_engine"] = Field(
        "lower_pixels",
        description="What lasting load may lead to: fewer slots for batch, then half the pixels, "
        "then the CPU engine for text that would be refused.",
    )
    quota_requests_per_s: float | None = Field(
        None, gt=0, description="Requests a second that one caller may make; unset: no such quota."
    )
    quota_requests_burst: float = Field(
        60.0, ge=1, description="Requests that one caller may make at once, where there is a quota."
    )
    quota_cost_per_s: float | None = Field(
        None,
        gt=0,
        description="Slot seconds of the engine that one caller may use a second; unset: no quota.",
    )
    quota_cost_burst: float = Field(
        120.0, gt=0, description="Slot seconds that one caller may use at once, likewise."
    )
    redis_url: str | None = Field(
        None,
        pattern=r"^(rediss?|unix)://",
        description="Redis or Valkey in which replicas share quotas; unset: each counts its own.",
    )

    # When the engine is in trouble
    breaker_policy: Literal["refuse", "cpu", "degrade"] = Field(
        "refuse",
        description="While the breaker is open or vLLM is down: refuse pages, let the CPU engine "
        "read text, or (too slow or failing, not too hot) go on with fewer and smaller pages.",
    )
    breaker_slow_ratio: float = Field(
        2.0,
        gt=1,
        description="Answers this many times as late as from vLLM in health may open the breaker.",
    )
    gpu_file: Path | None = Field(
        None, description="What the GPU probe in vLLM's container writes; unset: no sensors."
    )
    gpu_full_clock_megahertz: float | None = Field(
        None,
        gt=0,
        description="SM clock of the card under load when it is cool, which tells how much heat "
        "slows it; unset: only degrees tell.",
    )

    # What the cluster is told
    signals_deployment: str | None = Field(
        None,
        description="Deployment of this pod: changes of the breaker become Events and its "
        "readiness gate, with the pod's own token; unset: the cluster is told nothing.",
    )
    signals_max_unready_percent: int = Field(
        34, ge=1, le=50, description="Pods of it that may take themselves out of service at once."
    )
    pod_name: str | None = Field(None, description="This pod, as the downward API tells it.")
    pod_namespace: str | None = Field(None, description="Its namespace, likewise.")
    pod_uid: str | None = Field(None, description="Its uid, likewise.")

    # Time
    interactive_timeout_s: float = Field(
        30.0, gt=0, description="Default time for a whole interactive request."
    )
    standard_timeout_s: float = Field(
        60.0, gt=0, description="Default time for a whole standard request."
    )
    batch_timeout_s: float = Field(
        600.0, gt=0, description="Default for batch, and the longest `timeout_s` a caller may ask."
    )
    header_timeout_s: float = Field(
        15.0, gt=0, description="Longest that a connection may take to send a request's headers."
    )
    drain_propagation_s: float = Field(
        10.0,
        ge=0,
        description="How long a drain still admits, while callers hear that the pod is unready.",
    )
    shutdown_grace_s: int = Field(
        30, ge=0, description="How long pages in flight may finish after SIGTERM."
    )

    markers_directory: Path | None = Field(
        None,
        description="Folder whose files tell the engine's container of a drain; unset: none.",
    )

    # Who may call
    api_keys_file: Path | None = Field(
        None, description="File of salted key hashes (`hunyuan-ocr new-key`); unset: no keys."
    )

    # Seeing it
    slo_interactive_s: float = Field(
        2.0,
        gt=0,
        le=120,
        description="Time within which interactive pages should be answered; a boundary of the "
        "metrics' buckets.",
    )
    usage_records: str = Field(
        "stdout",
        pattern=r"^(off|stdout|/.+)$",
        description="Where a JSON line for each request that brought pages goes: `off`, `stdout` "
        "or a file's absolute path.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level of the JSON log lines."
    )
    otlp_endpoint: str | None = Field(
        None,
        pattern=_HTTP_URL,
        description="OTLP/HTTP collector for traces, e.g. http://collector:4318; unset: none.",
    )


def _parent(usage_records: str) -> Path | None:
    """The folder of the file that usage records go to, if they go to one."""
    return Path(usage_records).parent if usage_records.startswith("/") else None


# Of the command line and of the engine's launcher, which may share an environment with the service.
_OF_OTHERS = ("api_key", "gpu_probe", "management_url")


def load_settings() -> Settings:
    """Read the process's environment.

    Raises SettingsError naming every variable that is unknown or has a bad value.
    """
    known = {PREFIX + name.upper() for name in (*Settings.model_fields, *_OF_OTHERS)}
    given = {key.upper() for key in os.environ if key.upper().startswith(PREFIX)}
    if unknown := sorted(given - known):
        raise SettingsError(f"unknown setting {', '.join(unknown)}; see docs/settings.md")
    try:
        settings = Settings()
    except ValidationError as error:
        problems = [f"{PREFIX}{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors()]
        raise SettingsError("; ".join(problems)) from None
    if settings.port and settings.port == settings.management_port:
        raise SettingsError(f"{PREFIX}PORT and {PREFIX}MANAGEMENT_PORT are the same")
    if settings.signals_deployment and not (
        settings.pod_name and settings.pod_namespace and settings.pod_uid
    ):
        raise SettingsError(
            f"{PREFIX}SIGNALS_DEPLOYMENT needs {PREFIX}POD_NAME, _POD_NAMESPACE and _POD_UID"
        )
    folders = {
        "SPOOL_DIRECTORY": settings.spool_directory,
        "MARKERS_DIRECTORY": settings.markers_directory,
        "CONTROL_SOCKET's parent": settings.control_socket and settings.control_socket.parent,
        "USAGE_RECORDS's parent": _parent(settings.usage_records),
    }
    for name, folder in folders.items():
        if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
            raise SettingsError(f"{PREFIX}{name} is not a folder that can be written to")
    return settings
