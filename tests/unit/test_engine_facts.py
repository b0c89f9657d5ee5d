"""Visual tokens against the model's published arithmetic; the engine's heartbeat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.engines.heartbeat import EngineSample, Heartbeat, Pulse, read_sample
from hunyuan_ocr.engines.visual_tokens import PixelBounds, pixels_within

V1 = PixelBounds(512 * 512, 2048 * 2048)
V15 = PixelBounds(512 * 512, 4096 * 4096)


@pytest.mark.parametrize(
    ("bounds", "size", "tokens"),
    [
        (V1, (1, 1), 274),
        (V1, (1024, 768), 794),
        (V1, (1240, 1754), 2202),
        (V1, (2480, 3508), 4106),
        (V15, (2480, 3508), 8692),
    ],
)
def test_published_examples(bounds: PixelBounds, size: tuple[int, int], tokens: int) -> None:
    assert bounds.tokens(*size) == tokens


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(600, 8192))
def test_an_image_scaled_to_the_budget_stays_within_it(w: int, h: int, budget: int) -> None:
    allowed = pixels_within(budget)
    bounds = PixelBounds(1024, allowed)
    if max(w, h) <= 200 * min(w, h):
        assert bounds.tokens(w, h) <= budget


def sample(iterations: float, requests: float = 1, start: float = 100) -> EngineSample:
    return EngineSample(iterations, requests, start)


def test_steps_that_stop_while_work_waits_are_a_hang() -> None:
    heart = Heartbeat(hung_after_s=10)
    assert heart.observe(0, sample(5), 1) is Pulse.RESTARTED
    assert heart.observe(9, sample(5), 1) is Pulse.UP
    assert heart.observe(10, sample(5), 1) is Pulse.HUNG
    assert heart.observe(11, sample(6), 1) is Pulse.UP


def test_an_idle_engine_does_not_hang() -> None:
    heart = Heartbeat(hung_after_s=10)
    for now in range(100):
        assert heart.observe(now, sample(5, requests=0), 0) is not Pulse.HUNG
    assert heart.observe(105, sample(5, requests=1), 1) is Pulse.UP


def test_a_core_that_hung_while_idle_is_told_by_our_own_requests() -> None:
    heart = Heartbeat(hung_after_s=10)
    for now in range(60):
        heart.observe(now, sample(5, requests=0), sent=0)
    assert heart.observe(65, sample(5, requests=0), sent=3) is Pulse.UP
    assert heart.observe(70, sample(5, requests=0), sent=3) is Pulse.HUNG


def test_another_process_is_noticed() -> None:
    heart = Heartbeat(hung_after_s=10)
    heart.observe(0, sample(5), 1)
    assert heart.observe(1, sample(0, start=200), 0) is Pulse.RESTARTED
    heart.forget()
    assert heart.observe(2, sample(0, start=200), 0) is Pulse.RESTARTED


def test_a_scrape_is_read() -> None:
    text = (
        "# HELP x\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0\n'
        'vllm:iteration_tokens_total_count{engine="0",model_name="m"} 41.0\n'
        'vllm:iteration_tokens_total_count{engine="1",model_name="m"} 1.0\n'
        "process_start_time_seconds 1.7e+09\n"
    )
    assert read_sample(text) == EngineSample(42, 5, 1.7e9)
