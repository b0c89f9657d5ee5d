"""What a caller gets for a readable document: the right text, in place, in every form."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter

from tests.api.server import Server
from tests.files import encoded, heic, oriented, tiff_pages
from tests.pictures import LINES, jpeg_bytes, picture, png_bytes, saved

TEXT = "\n".join(LINES)
PAGE_TEXTS = (("First page 111",), ("Second page 222",), ("Third page 333",))


def to_json(data: bytes) -> dict[str, Any]:
    return {"json": {"image": base64.b64encode(data).decode()}}


def to_data_url(data: bytes) -> dict[str, Any]:
    return {"json": {"image": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def to_document(data: bytes) -> dict[str, Any]:
    return {"json": {"document": base64.urlsafe_b64encode(data).decode().rstrip("=")}}


def to_multipart(data: bytes) -> dict[str, Any]:
    return {"files": {"file": ("scan", data)}}


def to_raw(data: bytes) -> dict[str, Any]:
    return {"content": data, "headers": {"Content-Type": "application/octet-stream"}}


Sender = Callable[[bytes], dict[str, Any]]
SENDERS = (to_json, to_data_url, to_document, to_multipart, to_raw)


@pytest.mark.parametrize("send", SENDERS)
def test_every_way_to_send(client: httpx.Client, send: Sender) -> None:
    simple = client.post("/ocr", **send(png_bytes()))
    assert simple.status_code == 200
    assert simple.json() == {"text": TEXT}
    page = client.post("/v1/ocr", **send(png_bytes())).json()["pages"][0]
    assert (page["status"], page["text"]) == ("ok", TEXT)


IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF", "JPEG2000")


@pytest.mark.parametrize("image_format", IMAGE_FORMATS)
def test_every_image_format(client: httpx.Client, image_format: str) -> None:
    response = client.post("/ocr", **to_raw(saved(picture()[0], image_format)))
    assert response.json() == {"text": TEXT}


def test_a_photo_as_phones_store_it(client: httpx.Client) -> None:
    """HEIC of `picture()`, under a name and a type that say otherwise."""
    files = {"file": ("IMG_0417.jpg", heic("lines"), "image/jpeg")}
    assert client.post("/ocr", files=files).json() == {"text": TEXT}


def test_an_animation_is_read_as_its_first_picture_and_says_so(client: httpx.Client) -> None:
    later = picture(["Another picture"])[0]
    animation = encoded(picture()[0], "GIF", save_all=True, append_images=[later])
    answer = client.post("/v1/ocr", **to_raw(animation)).json()
    assert answer["pages_total"] == 1
    assert answer["pages"][0]["text"] == TEXT
    assert answer["pages"][0]["warnings"] == ["first_frame_only"]


def test_a_password_opens_a_pdf(client: httpx.Client) -> None:
    out = io.BytesIO()
    picture()[0].save(out, "PDF")
    writer = PdfWriter(clone_from=PdfReader(out))
    writer.encrypt("right", algorithm="RC4-128")
    locked = io.BytesIO()
    writer.write(locked)
    request = to_raw(locked.getvalue())
    for params in ({}, {"password": "wrong"}):
        refused = client.post("/v1/ocr", params=params, **request)
        assert (refused.status_code, refused.json()["code"]) == (422, "pdf_encrypted")
    answer = client.post("/v1/ocr", params={"password": "right"}, **request).json()
    assert answer["pages"][0]["text"] == TEXT


def test_lines_stand_where_they_were_drawn(client: httpx.Client) -> None:
    image, boxes = picture(size=(800, 400))
    answer = client.post("/v1/ocr", params={"task": "spotting"}, **to_raw(saved(image, "PNG")))
    page = answer.json()["pages"][0]
    assert (page["width"], page["height"]) == image.size
    assert [line["text"] for line in page["lines"]] == list(LINES)
    for line, drawn in zip(page["lines"], boxes, strict=True):
        for got, expected, side in zip(line["box"], drawn, image.size * 2, strict=True):
            assert abs(got - expected) <= 0.02 * side
        assert len(line["polygon"]) == 4


def test_a_sideways_photo_is_read_upright(client: httpx.Client) -> None:
    image, boxes = picture()
    turned = oriented(image, "JPEG", 6)
    page = client.post("/v1/ocr", **to_raw(turned)).json()["pages"][0]
    assert page["text"] == TEXT
    assert (page["width"], page["height"]) == image.size
    assert page["lines"][0]["box"][0] == pytest.approx(boxes[0][0], abs=0.02 * image.width)


def many_pages(image_format: str) -> bytes:
    drawn = [picture(texts)[0] for texts in PAGE_TEXTS]
    if image_format == "TIFF":
        return tiff_pages(drawn)
    out = io.BytesIO()
    drawn[0].save(out, "PDF", save_all=True, append_images=drawn[1:])
    return out.getvalue()


@pytest.mark.parametrize("image_format", ["TIFF", "PDF"])
def test_every_page_of_a_document(client: httpx.Client, image_format: str) -> None:
    data = many_pages(image_format)
    answer = client.post("/v1/ocr", **to_raw(data)).json()
    assert answer["pages_total"] == 3
    assert [page["index"] for page in answer["pages"]] == [0, 1, 2]
    assert [page["text"] for page in answer["pages"]] == [texts[0] for texts in PAGE_TEXTS]
    assert answer["usage"]["pages"] == 3
    assert answer["truncated"] is False
    joined = client.post("/ocr", **to_raw(data)).json()["text"]
    assert joined == "\n\n".join(texts[0] for texts in PAGE_TEXTS)


def test_a_document_cut_off_says_so(client: httpx.Client) -> None:
    """The file ends where the third page should begin: two pages and a flag, not silence."""
    images = [picture(texts, size=(240, 80))[0] for texts in PAGE_TEXTS]
    cut = tiff_pages(images)[: len(tiff_pages(images[:2]))]
    answer = client.post("/v1/ocr", **to_raw(cut)).json()
    assert answer["truncated"] is True
    assert [page["text"] for page in answer["pages"]] == [t[0] for t in PAGE_TEXTS[:2]]


def test_some_pages_of_a_document(client: httpx.Client) -> None:
    answer = client.post("/v1/ocr", params={"pages": "3,1"}, **to_raw(many_pages("PDF"))).json()
    assert [page["index"] for page in answer["pages"]] == [0, 2]
    assert answer["pages_total"] == 3


def test_text_and_markdown_answers(client: httpx.Client) -> None:
    for accept in ("text/plain", "text/markdown"):
        request = to_raw(many_pages("TIFF"))
        request["headers"]["Accept"] = accept
        response = client.post("/v1/ocr", **request)
        assert response.headers["content-type"].startswith(accept)
        assert response.text.split() == " ".join(texts[0] for texts in PAGE_TEXTS).split()


def test_ndjson_gives_a_page_a_line_as_it_finishes(client: httpx.Client) -> None:
    request = to_raw(many_pages("PDF"))
    request["headers"]["Accept"] = "application/x-ndjson"
    arrived: list[tuple[float, dict[str, Any]]] = []
    with client.stream("POST", "/v1/ocr", **request) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        arrived.extend((time.monotonic(), json.loads(line)) for line in response.iter_lines())
    *pages, end = arrived
    assert sorted(page["text"] for _, page in pages) == sorted(t[0] for t in PAGE_TEXTS)
    assert end[1]["usage"]["pages"] == 3
    assert pages[0][0] < end[0]


def tiff_with_spoilt_page(images: list[Image.Image], page: int) -> bytes:
    """The compressed pixels of one page overwritten with zeros."""
    data = bytearray(tiff_pages(images, compression="tiff_adobe_deflate"))
    with Image.open(io.BytesIO(data)) as opened:
        opened.seek(page)
        tags = opened.tag_v2  # type: ignore[attr-defined]
        offset, count = tags[273][0], tags[279][0]
    data[offset : offset + count] = bytes(count)
    return bytes(data)


def test_a_bad_page_does_not_cost_the_others(client: httpx.Client) -> None:
    images = [picture(texts)[0] for texts in PAGE_TEXTS]
    answer = client.post("/v1/ocr", **to_raw(tiff_with_spoilt_page(images, page=1))).json()
    assert [page["status"] for page in answer["pages"]] == ["ok", "error", "ok"]
    assert answer["pages"][2]["text"] == PAGE_TEXTS[2][0]
    assert answer["pages"][1]["problem"]["code"] == "image_corrupt"


def test_answers_carry_id_and_timing(client: httpx.Client, server: Server) -> None:
    given = "caller-7.Id_1"
    response = client.post(
        "/ocr", json=to_json(png_bytes())["json"], headers={"X-Request-Id": given}
    )
    assert response.headers["x-request-id"] == given
    assert "engine;dur=" in response.headers["server-timing"]
    line = server.log_of(given)
    assert line["status"] == 200
    assert line["stages_ms"]["engine"] > 0
    assert LINES[0] not in server.log.read_text()
    for insane in ("a" * 65, "a b", "ä", "<script>"):
        given_bytes = {b"X-Request-Id": insane.encode()}
        answered = client.get("/v1/options", headers=given_bytes).headers["x-request-id"]
        assert answered != insane
        assert len(answered) == 16


async def test_64_pages_at_once_each_reach_their_own_caller(server: Server) -> None:
    rng = random.Random(64)
    codes = [f"{rng.randrange(10**9):09d}" for _ in range(64)]

    async def ask(client: httpx.AsyncClient, code: str) -> str:
        response = await client.post("/ocr", **to_raw(jpeg_bytes([f"Code {code}"])))
        assert response.status_code == 200, response.text
        text: str = response.json()["text"]
        return text

    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        texts = await asyncio.gather(*(ask(client, code) for code in codes))
    for code, text in zip(codes, texts, strict=True):
        assert text.replace(" ", "") == f"Code{code}"


def test_leaving_stops_the_work(server: Server) -> None:
    before = server.metric("hunyuan_ocr_cancelled_total")
    with server.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/ocr", **to_raw(many_pages("TIFF")), timeout=0.05)
    deadline = time.monotonic() + 2
    while server.metric("hunyuan_ocr_cancelled_total") == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert server.metric("hunyuan_ocr_pages_in_flight") == 0
    with server.client() as client:
        assert client.post("/ocr", **to_raw(png_bytes())).json() == {"text": TEXT}


def test_what_cannot_be_read_in_time_is_not_begun(client: httpx.Client) -> None:
    response = client.post("/ocr", params={"timeout_s": "0.05"}, **to_raw(many_pages("TIFF")))
    assert response.status_code == 429
    assert response.json()["code"] == "deadline_unreachable"
    assert int(response.headers["retry-after"]) >= 1
