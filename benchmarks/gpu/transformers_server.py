"""transformers' generate() behind the part of OpenAI's API that the load-test kit asks for.

    python -m benchmarks.gpu.transformers_server MODEL --port 8000 [--random-weights]

The baseline of the published tables: one page after the other, without batches, streamed. Needs
torch, transformers and a GPU; to be run with an engine's Python. For measuring alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
from collections.abc import Iterator
from importlib import import_module
from threading import Thread
from typing import Any

from aiohttp import web
from PIL import Image


class Generator:
    """One model on one card; `stream` is for one thread at a time."""

    def __init__(self, model: str, *, random_weights: bool) -> None:
        self._torch = torch = import_module("torch")
        self._transformers = transformers = import_module("transformers")
        self._processor = transformers.AutoProcessor.from_pretrained(model)
        kind = transformers.AutoModelForImageTextToText
        if random_weights:
            config = transformers.AutoConfig.from_pretrained(model)
            with torch.device("cuda"):
                loaded = kind.from_config(config, dtype=torch.bfloat16)
        else:
            loaded = kind.from_pretrained(model, dtype=torch.bfloat16, device_map="cuda")
        self._model = loaded.eval()

    def stream(self, body: dict[str, Any]) -> Iterator[str]:
        """The answer's text, piece by piece; `ignore_eos` and `max_tokens` as vLLM has them."""
        messages, image = understood(body)
        prompt = self._processor.apply_chat_template(messages, add_generation_prompt=True)
        inputs = self._processor(text=[prompt], images=[image], return_tensors="pt").to("cuda")
        streamer = self._transformers.TextIteratorStreamer(
            self._processor.tokenizer, skip_prompt=True
        )
        most = body["max_tokens"]
        least = most if body.get("ignore_eos") else 1

        def generate() -> None:
            try:
                with self._torch.inference_mode():
                    self._model.generate(
                        **inputs,
                        streamer=streamer,
                        do_sample=False,
                        max_new_tokens=most,
                        min_new_tokens=least,
                    )
            except BaseException:
                streamer.end()  # or else its reader waits for ever
                raise

        thread = Thread(target=generate)
        thread.start()
        try:
            yield from streamer
        finally:
            thread.join()


def understood(body: dict[str, Any]) -> tuple[list[dict[str, Any]], Image.Image]:
    """The chat's messages with a placeholder for its only image, and the image."""
    images: list[Image.Image] = []
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = message["content"]
        parts: list[dict[str, Any]]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept: list[dict[str, Any]] = []
        for part in parts:
            if part["type"] == "image_url":
                digits = part["image_url"]["url"].partition(",")[2]
                images.append(Image.open(io.BytesIO(base64.b64decode(digits))).convert("RGB"))
                kept.append({"type": "image"})
            else:
                kept.append(part)
        messages.append({"role": message["role"], "content": kept})
    (image,) = images
    return messages, image


def build(generator: Generator) -> web.Application:
    one_at_a_time = asyncio.Lock()

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with one_at_a_time:
            await response.prepare(request)
            pieces = generator.stream(body)
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                delta = {"choices": [{"index": 0, "delta": {"content": piece}}]}
                await response.write(f"data: {json.dumps(delta)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application(client_max_size=64 << 20)
    app.router.add_get("/health", health)
    app.router.add_post("/v1/chat/completions", chat)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or name of the checkpoint, transformers' layout")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--random-weights", action="store_true", help="a folder without weights")
    options = parser.parse_args()
    generator = Generator(options.model, random_weights=options.random_weights)
    web.run_app(build(generator), host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
