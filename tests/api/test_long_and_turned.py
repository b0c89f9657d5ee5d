"""Pages that lie on their side, pages that are too long, pages with nothing on them."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import httpx
import pytest
from PIL import Image, ImageDraw
from reportlab.pdfgen.canvas import Canvas

from tests.api.server import Server
from tests.paper import font
from tests.pictures import LINES, picture, saved

NUMBERS = [f"Message {number:03d}" for number in range(1, 121)]
_CLOCKWISE = {
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}


def read(client: httpx.Client, image: Image.Image, **params: str) -> dict[str, Any]:
    response = client.post(
        "/v1/ocr",
        params=params,
        content=saved(image, "PNG"),
        headers={"Content-Type": "image/png"},
    )
    assert response.status_code == 200, response.text
    page: dict[str, Any] = response.json()["pages"][0]
    return page


@pytest.mark.parametrize("lies", [90, 180, 270])
@pytest.mark.parametrize("explicit", [False, True])
def test_a_turned_page_is_read_upright(client: httpx.Client, lies: int, explicit: bool) -> None:
    image, boxes = picture()
    turn = 360 - lies
    page = read(
        client, image.transpose(_CLOCKWISE[lies]), **({"orient": str(turn)} if explicit else {})
    )
    assert page["text"] == "\n".join(LINES)
    assert page["rotation_applied"] == turn
    assert (page["width"], page["height"]) == image.size
    assert page["lines"][0]["box"][0] == pytest.approx(boxes[0][0], abs=0.02 * image.width)


def test_a_page_is_left_as_it_is_where_that_is_asked_for(client: httpx.Client) -> None:
    image, _ = picture()
    page = read(client, image.transpose(_CLOCKWISE[180]), orient="none")
    assert (page["rotation_applied"], page["width"]) == (0, image.width)
    assert page["text"] != "\n".join(LINES)


def test_degrees_may_be_a_number_and_nothing_else_may(client: httpx.Client) -> None:
    assert client.post("/v1/ocr", json={"image": "aGk=", "orient": 45}).status_code == 422
    assert client.post("/v1/ocr", json={"image": "aGk=", "orient": 90}).status_code == 415


@pytest.mark.parametrize("size", [(600, 800), (10, 8), (1, 1)])
def test_a_blank_page_is_no_work_for_the_engine(
    client: httpx.Client, server: Server, size: tuple[int, int]
) -> None:
    page = read(client, Image.new("RGB", size, (250, 248, 240)))
    assert (page["blank"], page["text"], page["lines"]) == (True, "", [])
    assert page["finish_reason"] == "blank"
    assert (page["status"], page["warnings"]) == ("ok", [])


def test_a_page_of_one_word_is_not_blank(client: httpx.Client) -> None:
    page = read(client, picture(LINES[:1], size=(900, 1200))[0])
    assert (page["blank"], page["text"]) == (False, LINES[0])


def test_a_tiny_crop_is_read_without_harm(client: httpx.Client) -> None:
    crop = Image.new("RGB", (10, 8), "white")
    ImageDraw.Draw(crop).line((2, 1, 2, 6), fill="black", width=2)
    page = read(client, crop)
    assert (page["status"], page["blank"]) == ("ok", False)
    assert (page["width"], page["height"]) == (10, 8)


def chat_log() -> tuple[Image.Image, list[float]]:
    """720 x 12040 pixels of messages, and where the middle of each lies."""
    image = Image.new("RGB", (720, 12_040), "white")
    pen, face = ImageDraw.Draw(image), font("TestHeiA", 30)
    middles = []
    for at, text in enumerate(NUMBERS):
        y = 40 + at * 100
        pen.text((40 + at % 2 * 300, y), text, fill="black", font=face)
        middles.append(y + 18.0)
    return image, middles


@pytest.mark.parametrize("cut_through", [False, True], ids=["between lines", "anywhere"])
def test_every_line_of_a_long_screenshot_is_read_once(
    client: httpx.Client, cut_through: bool
) -> None:
    """Ticks of a ruler leave no row quiet: parts overlap, and what both show counts once."""
    image, middles = chat_log()
    if cut_through:
        for y in range(0, image.height, 4):
            image.paste("black", (706, y, 712, y + 2))
    page = read(client, image)
    assert (page["width"], page["height"]) == (720, 12_040)
    assert page["text"].split("\n") == NUMBERS
    assert page["scale"] == 1
    for line, middle in zip(page["lines"], middles, strict=True):
        _, top, _, bottom = line["box"]
        assert (top + bottom) / 2 == pytest.approx(middle, abs=8)


@pytest.mark.parametrize("detail", ["auto", "high"])
def test_a_large_page_is_not_taken_for_much_more_than_it_is(
    client: httpx.Client, detail: str
) -> None:
    """It was once refused with 25 times what it takes."""
    image = chat_log()[0] if detail == "auto" else picture(size=(3000, 4000), size_px=90)[0]
    began = time.monotonic()
    page = read(client, image, detail=detail)
    took_s = time.monotonic() - began
    assert read(client, image, detail=detail, timeout_s=f"{4 * took_s:.1f}")["text"] == page["text"]


def test_a_long_page_streams_its_parts_in_order(client: httpx.Client) -> None:
    image, _ = chat_log()
    request: dict[str, Any] = {
        "content": saved(image, "PNG"),
        "headers": {"Content-Type": "image/png", "Accept": "text/event-stream"},
    }
    text, pages = "", []
    with client.stream("POST", "/v1/ocr", **request) as response:
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name in ("text", "page"):
                data = json.loads(line.removeprefix("data: "))
                if name == "text":
                    text += data["text"]
                else:
                    pages.append(data)
    assert text.split("\n") == NUMBERS
    assert [page["text"] for page in pages] == [text]


def test_a_wide_panorama_is_read(client: httpx.Client) -> None:
    """Cut from top to bottom, lines are halved: they come back whole."""
    words = [f"{word} {n:02d}" for n in range(40) for word in ("alpha", "delta")]
    lines = [" ".join(words[:40]), " ".join(words[40:])]
    face = font("TestSans", 36)
    image = Image.new("RGB", (int(face.getlength(lines[0])) + 160, 420), "white")
    for at, text in enumerate(lines):
        ImageDraw.Draw(image).text((60 + 37 * at, 90 + 180 * at), text, fill="black", font=face)
    page = read(client, image.resize((image.width * 2, image.height * 2)))
    assert page["text"].replace(" ", "") == "\n".join(lines).replace(" ", "")


def test_detail_decides_how_much_of_a_page_is_seen(client: httpx.Client) -> None:
    image = picture(size=(3000, 4000), size_px=90)[0]
    scales = {detail: read(client, image, detail=detail)["scale"] for detail in ("low", "high")}
    assert scales["low"] < 0.5 < scales["high"]
    assert read(client, image, detail="low")["warnings"] == ["downscaled"]
    options = client.get("/v1/options").json()
    assert options["detail"]["low"] < options["detail"]["auto"] < options["detail"]["high"]
    assert options["orient"] == ["auto", "none", "90", "180", "270"]


def pdf_of(pages: int) -> bytes:
    data = io.BytesIO()
    canvas = Canvas(data, pagesize=(300, 120))
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica", 24)
        canvas.drawString(30, 60, f"Page {number:03d}")
        canvas.showPage()
    canvas.save()
    return data.getvalue()


def test_a_long_pdf_gives_its_first_page_at_once_and_ends_with_its_caller(server: Server) -> None:
    data, rss = pdf_of(300), server.rss_megabytes()
    request: dict[str, Any] = {
        "content": data,
        "headers": {"Content-Type": "application/pdf", "Accept": "application/x-ndjson"},
        "params": {"priority": "batch"},
    }
    before = server.metric("hunyuan_ocr_cancelled_total")
    with server.client() as client:
        client.post("/v1/ocr", **request | {"params": {"pages": "1"}})  # warm
        started = time.monotonic()
        with client.stream("POST", "/v1/ocr", **request) as response:
            seen = [json.loads(next(response.iter_lines()))]
        first_s, left = time.monotonic() - started, time.monotonic()
    assert seen[0]["text"].startswith("Page 0")
    assert seen[0]["pages_expected"] == 300
    assert first_s < 2
    while server.metric("hunyuan_ocr_cancelled_total") == before:
        assert time.monotonic() - left < 1
        time.sleep(0.02)
    assert server.metric("hunyuan_ocr_pages_in_flight") == 0
    assert server.rss_megabytes() - rss < 30
