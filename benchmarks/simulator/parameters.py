"""What the simulated card does. Each number has its source; the sensitivity table varies them.

The published figures for HunyuanOCR on vLLM and an RTX 4090 D are 22 pages/s at 16 in flight and
26 at 32, without the pages they were measured with. Numbers marked "fitted" make the simulated
engine give these on the pages of `workload.KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """Times in seconds.

    `render_megapixel_s`: preprocessing of an image on a CPU of vLLM's API server; fitted. On an
        H200's host one renderer limited 0.28.0 to 13.8 pages/s of 0.79 megapixels, 0.09 s a
        megapixel; 0.05 lets 26 pages/s pass.
    `renderers`: vLLM's default.
    `step_s`: a decoding step of one sequence; measured on an H200 (418 tokens/s), where it is
        bound by launches rather than by memory, so not scaled.
    `step_sequence_s`: what each further sequence adds; fitted between 8 and 32 in flight.
    `vision_tflop_s`: image encoder and prefill by the encoder's arithmetic; fitted.
    `prefill_token_s`: a token of the prompt: 2 * 0.54 G parameters at half of 147 TFLOP/s.
    `kv_tokens`: 24 GB * 0.9, less 4.9 GB beside the cache as on the H200, at 96 KiB a token.
    `batched_tokens`, `sequences`: vLLM's defaults for this size of card.
    `max_queued`: pages running and waiting above which it answers 503 (from 0.30); None: no limit.
    """

    render_megapixel_s: float = 0.035
    renderers: int = 1
    step_s: float = 0.0024
    step_sequence_s: float = 0.00004
    vision_tflop_s: float = 0.0045
    prefill_token_s: float = 15e-6
    kv_tokens: int = 170_000
    batched_tokens: int = 8192
    sequences: int = 256
    max_queued: int | None = None


@dataclass(frozen=True, slots=True)
class SidecarParameters:
    """`prepare_megapixel_s`: decoding and scaling in a worker; assumed.
    `limit_slots`: the published choice for the 4090 D, with half of it as the floor.
    `reserved_slots`: the service's default.
    """

    prepare_megapixel_s: float = 0.025
    decode_workers: int = 4
    limit_slots: int = 16
    floor_slots: int = 8
    reserved_slots: int = 7


@dataclass(frozen=True, slots=True)
class Setup:
    """A card and what stands before it."""

    engine: EngineParameters = field(default_factory=EngineParameters)
    sidecar: SidecarParameters = field(default_factory=SidecarParameters)


RTX_4090_D = Setup()
