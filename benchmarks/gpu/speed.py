"""Pages a second and time to the first token, closed loop, streamed, `ignore_eos`."""

from __future__ import annotations

import asyncio
import io
import random
import statistics
import time
from dataclasses import asdict, dataclass

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.gpu.http import Answer, Client, body
from hunyuan_ocr.engines.isolation import FONT

SIZE = (1024, 768)
TOKENS = (64, 448)


@dataclass(frozen=True, slots=True)
class Speed:
    in_flight: int
    seconds: float
    answers: int
    errors: int
    pages_per_s: float
    tokens_per_s: float
    first_token_p50_ms: float
    first_token_p95_ms: float
    complete_p50_ms: float
    complete_p95_ms: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def jpeg(seed: int) -> bytes:
    """A page of text lines with paper grain, as a scan has: about 150 to 250 kB."""
    rng = random.Random(seed)
    grain = Image.effect_noise(SIZE, 24).filter(ImageFilter.GaussianBlur(0.6))
    page = Image.blend(Image.new("L", SIZE, 255), grain, 0.25).convert("RGB")
    pen, font = ImageDraw.Draw(page), ImageFont.truetype(str(FONT), 20)
    for line in range(24):
        text = " ".join(str(rng.randint(1, 10**8)) for _ in range(rng.randint(3, 8)))
        pen.text((24, 20 + 30 * line), text, fill=(20, 20, 40), font=font)
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(client: Client, in_flight: int, seconds: float, images: list[bytes]) -> Speed:
    """`in_flight` callers, each asking again when answered. Counted: what ends in the window."""
    rng = random.Random(in_flight)
    done: list[tuple[float, Answer]] = []
    warm = min(4.0, seconds / 4)
    began = time.perf_counter()

    async def caller() -> None:
        while time.perf_counter() - began < warm + seconds:
            content = body(
                rng.choice(images), kind="jpeg", stream=True, ignore_eos=True,
                max_tokens=rng.randint(*TOKENS), stream_options={"include_usage": True},
            )  # fmt: skip
            answer = await client.stream(content, 60)
            done.append((time.perf_counter() - began, answer))

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    window = [a for at, a in done if warm <= at <= warm + seconds]
    good = [a for a in window if a.status == 200 and not a.error and a.first_token_s]
    first = [a.first_token_s * 1e3 for a in good if a.first_token_s]
    complete = [a.seconds * 1e3 for a in good]
    if not good:
        failed = [a.error for a in window][:3]
        raise RuntimeError(f"no good answer at {in_flight} in flight: {failed}")
    return Speed(
        in_flight, seconds, len(good), len(window) - len(good), round(len(good) / seconds, 2),
        round(sum(a.tokens for a in good) / seconds, 1), round(statistics.median(first), 1),
        round(_quantile(first, 0.95), 1), round(statistics.median(complete), 1),
        round(_quantile(complete, 0.95), 1),
    )  # fmt: skip
