"""What comes in: formats by content, base64 in every spelling, page selections."""

from __future__ import annotations

import base64
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.documents.document import DocumentKind
from hunyuan_ocr.documents.encoding import decode_base64
from hunyuan_ocr.documents.pages import parse_pages
from hunyuan_ocr.documents.sniff import sniff
from hunyuan_ocr.errors import (
    BodyTooLarge,
    EmptyBody,
    InvalidBase64,
    InvalidField,
    OcrError,
    PageOutOfRange,
    TooManyPages,
    UnsupportedFormat,
    UrlRefused,
)
from tests import files

MIB = 1 << 20


@pytest.mark.parametrize("kind", DocumentKind)
def test_every_format_is_told_by_its_bytes(kind: DocumentKind) -> None:
    match kind:
        case DocumentKind.PDF:
            data = files.pdf_pages(1)
        case DocumentKind.HEIC:
            data = files.heic()
        case DocumentKind.JP2:
            data = files.encoded(files.quadrants(), "JPEG2000")
        case _:
            data = files.encoded(files.quadrants(), kind.name)
    assert sniff(data) is kind


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", DocumentKind.HEIC),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", DocumentKind.AVIF),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", DocumentKind.HEIC),
        (b"MM\0+\0\x08\0\0", DocumentKind.TIFF),
        (b"\xff\x4f\xff\x51\0\x29", DocumentKind.JP2),  # a bare code stream
        (b"\xef\xbb\xbf\r\n%PDF-1.7\n", DocumentKind.PDF),
    ],
)
def test_containers_are_told_apart(head: bytes, kind: DocumentKind) -> None:
    assert sniff(head) is kind


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0",  # ICO
        b"<!doctype html><html></html>",
        b"PK\3\4rest of a zip",
        b"BM is how this text starts, and a bitmap too",
        b"plain text",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom",
        b"\xff\xd8",
    ],
)
def test_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedFormat):
        sniff(data)


def test_nothing_at_all_is_an_empty_body() -> None:
    with pytest.raises(EmptyBody):
        sniff(b"")


@given(st.binary(max_size=64))
def test_sniffing_noise_never_fails_otherwise(data: bytes) -> None:
    with suppress(UnsupportedFormat, EmptyBody):
        assert sniff(data) in DocumentKind


@st.composite
def spellings(draw: st.DrawFn) -> tuple[bytes, str]:
    """Bytes, and one of the ways people write them in base64."""
    data = draw(st.binary(min_size=8, max_size=200))
    # A slash in front would be read as a path: no supported format starts with those bytes.
    data = b"\x89PNG" + data
    url_safe = draw(st.booleans())
    text = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()
    if draw(st.booleans()):
        text = text.rstrip("=")
    if draw(st.booleans()):
        width, end = draw(st.integers(1, 80)), draw(st.sampled_from(["\n", "\r\n", " ", "\t"]))
        text = end.join(text[at : at + width] for at in range(0, len(text), width)) + end
    prefix = draw(
        st.sampled_from(
            ["", "data:image/png;base64,", "data:;base64,", "DATA:image/png;charset=x;BASE64, "]
        )
    )
    return data, prefix + text


@given(spellings())
def test_every_spelling_of_base64_decodes_to_the_same(case: tuple[bytes, str]) -> None:
    data, text = case
    assert decode_base64(text, MIB) == data


def test_a_jpeg_may_start_with_a_slash() -> None:
    data = files.encoded(files.quadrants(), "JPEG")
    text = base64.b64encode(data).decode()
    assert text.startswith("/9j/")
    assert decode_base64(text, MIB) == data


@pytest.mark.parametrize(
    "text",
    [
        "http://169.254.169.254/latest",
        "HTTPS://example.com/a.png",
        "  ftp://host/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "./scan.png",
        "../../scan",
        "~/scan",
        "C:\\scan.png",
        "C:/scan",
        "\\\\host\\share",
        "images/scan.png",
        "scan.jpeg ",
    ],
)
def test_urls_and_paths_are_refused(text: str) -> None:
    with pytest.raises(UrlRefused):
        decode_base64(text, MIB)


@pytest.mark.parametrize(
    "text",
    [
        "iVBORw0KGgo*",
        "A",
        "AAAAA",
        "QQ==QQ==",
        "QQ=Q",
        "=QQQ",
        "ab+_",
        "iVBORw0KGgo你好",
        "data:image/png,abc",
        "data:image/png;base64;,QUJD",
        "QUJD====",
    ],
)
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidBase64):
        decode_base64(text, MIB)


@pytest.mark.parametrize("text", ["", "  \n", "data:image/png;base64,"])
def test_no_digits_are_an_empty_body(text: str) -> None:
    with pytest.raises(EmptyBody):
        decode_base64(text, MIB)


def test_the_size_limit_is_exact_and_does_not_count_whitespace() -> None:
    text = base64.encodebytes(bytes(1000)).decode()
    assert len(decode_base64(text, 1000)) == 1000
    with pytest.raises(BodyTooLarge):
        decode_base64(text, 999)


def test_base64_takes_one_pass() -> None:
    data = bytes(range(256)) * 4096
    text = base64.b64encode(data).decode()
    started = time.process_time()
    assert decode_base64(text, MIB) == data
    assert time.process_time() - started < 0.1  # a megabyte; loops in Python take seconds


@given(st.text(max_size=60))
def test_decoding_noise_never_fails_otherwise(text: str) -> None:
    with suppress(InvalidBase64, UrlRefused, EmptyBody):
        assert decode_base64(text, MIB)


@pytest.mark.parametrize(
    ("selection", "indices"),
    [
        ("1", (0,)),
        ("1,3-5", (0, 2, 3, 4)),
        (" 2 - 3 , 1 ", (1, 2, 0)),
        ("8-", (7, 8, 9)),
        ("2,2,1-2", (1, 0)),
        (None, tuple(range(10))),
    ],
)
def test_page_selections(selection: str | None, indices: tuple[int, ...]) -> None:
    assert parse_pages(selection, 10, 20) == indices


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        ("", InvalidField),
        ("a", InvalidField),
        ("1,,2", InvalidField),
        ("-3", InvalidField),
        ("1--2", InvalidField),
        ("3-2", InvalidField),
        ("1.5", InvalidField),
        ("٣", InvalidField),
        ("1," * 600, InvalidField),
        ("9" * 12, InvalidField),
        ("0", PageOutOfRange),
        ("11", PageOutOfRange),
        ("1-999999999", PageOutOfRange),
        ("12-", PageOutOfRange),
        ("1-6", TooManyPages),
        (None, TooManyPages),
    ],
)
def test_selections_are_refused(selection: str | None, error: type[OcrError]) -> None:
    with pytest.raises(error):
        parse_pages(selection, 10, 5)


@given(st.lists(st.integers(0, 49), min_size=1, max_size=50))
def test_selecting_pages_one_by_one_keeps_their_order(indices: list[int]) -> None:
    selection = ",".join(str(index + 1) for index in indices)
    assert parse_pages(selection, 50, 50) == tuple(dict.fromkeys(indices))
