"""Every way a request can be wrong: the right status, a stable code, the process alive."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.server import Server
from tests.files import cut, png_bomb
from tests.pictures import jpeg_bytes, png_bytes

JSON = {"Content-Type": "application/json"}


def problem_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["title"]
    assert problem["detail"]
    return problem


def expect(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    problem = problem_of(response)
    assert (response.status_code, problem["code"]) == (status, code), problem
    return problem


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
class TestBodies:
    def test_malformed_json(self, client: httpx.Client, path: str) -> None:
        for body in (b"{", b'{"image": }', b"\xff\xfe", b"[" * 10_000, b"nul"):
            expect(client.post(path, content=body, headers=JSON), 400, "malformed_json")

    def test_wrong_types_name_the_field_and_not_the_value(
        self, client: httpx.Client, path: str
    ) -> None:
        secret = "never-echo-this"
        for body in ({"image": [secret]}, {"image": 5}, {"image": "aGk=", "timeout_s": secret}):
            problem = expect(client.post(path, json=body), 422, "invalid_field")
            assert problem["errors"][0]["field"] in {"image", "timeout_s"}
            assert secret not in json.dumps(problem)

    def test_not_an_object(self, client: httpx.Client, path: str) -> None:
        expect(client.post(path, json=["aGk="]), 422, "invalid_field")

    def test_no_source_and_two_sources(self, client: httpx.Client, path: str) -> None:
        picture = base64.b64encode(png_bytes()).decode()
        expect(client.post(path, json={}), 400, "not_one_source")
        both = {"image": picture, "document": picture}
        expect(client.post(path, json=both), 400, "not_one_source")
        files = [("file", ("a.png", png_bytes())), ("file", ("b.png", png_bytes()))]
        expect(client.post(path, files=files), 400, "not_one_source")
        mixed = client.post(path, files=files[:1], data={"image": picture})
        expect(mixed, 400, "not_one_source")

    def test_empty_body(self, client: httpx.Client, path: str) -> None:
        expect(client.post(path, content=b"", headers=JSON), 400, "empty_body")
        expect(
            client.post(path, content=b"", headers={"Content-Type": "image/png"}), 400, "empty_body"
        )
        expect(client.post(path, files={"file": ("a.png", b"")}), 400, "empty_body")

    def test_broken_multipart(self, client: httpx.Client, path: str) -> None:
        for kind, body in (
            ("multipart/form-data", b"x"),
            ("multipart/form-data; boundary=a", b"--b\r\n\r\nx"),
            ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data\r\n\r\nx"),
        ):
            response = client.post(path, content=body, headers={"Content-Type": kind})
            assert response.status_code == 400
            problem_of(response)

    def test_media_type(self, client: httpx.Client, path: str) -> None:
        for kind in ("application/xml", "text/html", "application/x-www-form-urlencoded"):
            response = client.post(path, content=b"<a/>", headers={"Content-Type": kind})
            expect(response, 415, "unsupported_media_type")
        expect(client.post(path, content=b"<a/>"), 415, "unsupported_media_type")

    def test_non_image_bytes(self, client: httpx.Client, path: str) -> None:
        for data in (b"hello, I am text", b"PK\x03\x04rest", b"<html></html>", bytes(1000)):
            for response in (
                client.post(path, content=data, headers={"Content-Type": "image/png"}),
                client.post(path, json={"image": base64.b64encode(data).decode()}),
            ):
                expect(response, 415, "unsupported_format")

    def test_truncated_image(self, client: httpx.Client, path: str) -> None:
        for whole in (jpeg_bytes(), png_bytes()):
            response = client.post(path, content=cut(whole), headers={"Content-Type": "image/jpeg"})
            expect(response, 422, "image_corrupt")

    def test_header_of_100_megapixels(self, client: httpx.Client, path: str) -> None:
        for width, height in ((10_000, 10_000), (35_000, 35_000), (2**31 - 1, 2**31 - 1)):
            response = client.post(
                path, content=png_bomb(width, height), headers={"Content-Type": "image/png"}
            )
            expect(response, 413, "image_too_large")

    def test_base64(self, client: httpx.Client, path: str) -> None:
        for text in ("no base64!", "aGk=aGk=", "data:image/png;base64,%%%"):
            expect(client.post(path, json={"image": text}), 422, "invalid_base64")

    def test_urls_and_paths_are_refused(self, client: httpx.Client, path: str) -> None:
        for text in ("http://169.254.169.254/a.png", "https://x.test/a", "file:///etc/passwd"):
            expect(client.post(path, json={"image": text}), 422, "url_refused")

    def test_method(self, client: httpx.Client, path: str) -> None:
        response = client.get(path)
        expect(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"

    def test_accept(self, client: httpx.Client, path: str) -> None:
        response = client.post(path, content=png_bytes(), headers={"Accept": "image/gif"})
        expect(response, 406, "not_acceptable")


def test_unknown_member_is_refused_by_v1_and_ignored_by_ocr(client: httpx.Client) -> None:
    body = {"image": base64.b64encode(png_bytes()).decode(), "colour": "red"}
    problem = expect(client.post("/v1/ocr", json=body), 422, "invalid_field")
    assert problem["errors"][0]["field"] == "colour"
    assert client.post("/ocr", json=body).status_code == 200


def test_unknown_path(client: httpx.Client) -> None:
    for path in ("/v2/ocr", "/ocr/", "/metrics", "/livez", "/%00", "/" + "a" * 5000):
        expect(client.get(path), 404, "not_found")


def test_unknown_task_and_page(client: httpx.Client) -> None:
    png = {"Content-Type": "image/png"}
    for query, status, code in (
        ({"task": "poetry"}, 422, "invalid_field"),
        ({"task": "translate"}, 422, "task_unsupported"),
        ({"pages": "2"}, 422, "page_out_of_range"),
        ({"pages": "one"}, 422, "invalid_field"),
        ({"timeout_s": "-1"}, 422, "invalid_field"),
        ({"json_schema": "{"}, 422, "invalid_field"),
    ):
        response = client.post("/v1/ocr", params=query, content=png_bytes(), headers=png)
        expect(response, status, code)


def test_keys(strict_server: Server, keyed_client: httpx.Client) -> None:
    png = {"Content-Type": "image/png"}
    assert keyed_client.post("/ocr", content=png_bytes(), headers=png).status_code == 200
    key = keyed_client.headers["authorization"].removeprefix("Bearer ")
    with strict_server.client() as client:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Bearer {key}x"},
            {"Authorization": f"Basic {key}"},
            {"X-API-Key": "billing."},
            {"X-API-Key": ".", "Authorization": ""},
        ):
            for path in ("/ocr", "/v1/ocr", "/ocr%0A", "/v1/ocr%0A"):
                response = client.post(path, content=png_bytes(), headers=png | headers)
                expect(response, 401, "unauthorized")
                assert response.headers["www-authenticate"].startswith("Bearer")
            expect(client.get("/v1/options", headers=headers), 401, "unauthorized")
        accepted = client.post("/ocr", content=png_bytes(), headers=png | {"X-API-Key": key})
        assert accepted.status_code == 200
        assert strict_server.log_of(accepted.headers["x-request-id"])["tenant"] == "billing"
        assert client.get("/openapi.json").status_code == 200
    assert key not in strict_server.log.read_text()


def test_large_body_is_refused_before_it_is_read(server: Server) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(200):
            sent += 1
            yield bytes(1_000_000)

    before = server.rss_megabytes()
    declared = raw_answer(server, "Content-Length: 200000000\r\nExpect: 100-continue")
    assert b" 413 " in declared.split(b"\r\n")[0]
    assert b'"body_too_large"' in declared
    with server.client() as client:
        chunked = client.post("/ocr", content=endless(), headers=JSON)
        expect(chunked, 413, "body_too_large")
    # The limit is 64 MB: what was read until then, and never the 200 MB.
    assert server.peak_rss_megabytes() < before + 250
    assert server.metric("hunyuan_ocr_body_bytes") == 0


def raw_answer(server: Server, head: str, body: str = "") -> bytes:
    """What a server says to a request whose body never comes, or not all of it."""
    address = urlsplit(server.url)
    head = f"POST /ocr HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n"
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as connection:
        connection.sendall(f"{head}\r\n{body}".encode())
        answer = b""
        while not answer.endswith(b"}"):
            received = connection.recv(65536)
            assert received, answer
            answer += received
    return answer


def test_slow_body(strict_server: Server, keyed_client: httpx.Client) -> None:
    started = time.monotonic()
    key = keyed_client.headers["authorization"]
    answer = raw_answer(strict_server, f"Content-Length: 100\r\nAuthorization: {key}", "{")
    assert b" 408 " in answer.split(b"\r\n")[0]
    assert b'"body_timeout"' in answer
    assert 0.8 < time.monotonic() - started < 3


def test_nothing_of_a_request_reaches_the_log(server: Server) -> None:
    secret = "SECRET4711"
    with server.client() as client:
        for body in ({"image": secret}, {"image": secret, "instruction": secret}, {secret: secret}):
            client.post("/v1/ocr", json=body)
        client.post(f"/{secret}", params={"q": secret}, headers={"X-Other": secret})
        client.post("/v1/ocr", content=secret, headers={"Content-Type": "image/png"})
    assert secret not in server.log.read_text()


def test_the_process_is_the_same_after_all_of_it(server: Server) -> None:
    with server.client() as client:
        assert client.get("/v1/options").status_code == 200
    assert not [line for line in server.log_lines() if line["message"] == "unexpected error"]


def test_a_body_of_many_members_is_refused_at_once(client: httpx.Client) -> None:
    body = {"image": "aaaa"} | {f"k{number}": number for number in range(100_000)}
    started = time.monotonic()
    response = client.post("/v1/ocr", json=body)
    expect(response, 422, "invalid_field")
    assert time.monotonic() - started < 2
    assert len(response.content) < 5000
    long_name = client.post("/v1/ocr", json={"image": "aaaa", "k" * 1_000_000: 1})
    expect(long_name, 422, "invalid_field")
    assert len(long_name.content) < 5000
    started = time.monotonic()
    wide = client.post("/v1/ocr", content=b"[" + b"{}," * 5_000_000 + b"{}]", headers=JSON)
    expect(wide, 422, "invalid_field")
    assert time.monotonic() - started < 2
    many = client.post("/v1/ocr", json={"image": "aaaa", "fields": [0] * 1_000_000})
    expect(many, 422, "invalid_field")
    assert len(many.content) < 5000


def test_compressed_bodies_are_refused_by_name(client: httpx.Client) -> None:
    headers = JSON | {"Content-Encoding": "gzip"}
    problem = expect(
        client.post("/ocr", content=b"x", headers=headers), 415, "unsupported_media_type"
    )
    assert "Content-Encoding" in problem["detail"]


@pytest.mark.parametrize("charset", ["utf-7", "undefined", "unicode_escape", "no-such"])
def test_forms_are_taken_in_utf_8(client: httpx.Client, charset: str) -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="task"\r\n\r\n+2AA-\\ud800\r\n--B--\r\n'
    kind = {"Content-Type": f"multipart/form-data; boundary=B; charset={charset}"}
    expect(client.post("/v1/ocr", content=body, headers=kind), 400, "bad_request")


@pytest.mark.parametrize("path", ["/v1/ocr", "/v1/chat/completions"])
def test_numbers_beyond_all_bounds_are_refused(client: httpx.Client, path: str) -> None:
    for body in (b'{"temperature": 1e999}', b'{"json_schema": {"anyOf": [{"const": -1e999}]}}'):
        answer = client.post(path, content=body, headers=JSON)
        assert answer.status_code in (404, 422), answer.text  # this engine may have no chat


def test_fields_without_extract_are_refused(client: httpx.Client) -> None:
    picture = base64.b64encode(png_bytes()).decode()
    body = {"image": picture, "fields": ["Total"]}
    expect(client.post("/v1/ocr", json=body), 422, "invalid_field")


def test_leaving_in_the_middle_of_an_upload_is_no_error_of_ours(server: Server) -> None:
    address = urlsplit(server.url)
    head = "POST /v1/ocr HTTP/1.1\r\nHost: x\r\nX-Request-Id: left-early\r\n"
    with socket.create_connection((address.hostname or "", address.port or 0), 10) as connection:
        connection.sendall(
            f"{head}Content-Type: image/png\r\nContent-Length: 5000\r\n\r\nabc".encode()
        )
    line = server.log_of("left-early")
    assert (line["status"], line["code"]) == (499, None)


class TestConnections:
    """What never becomes a request is ended by the server, and probes stay up meanwhile."""

    @staticmethod
    def ended(server: Server, data: bytes, within_s: float) -> bytes:
        """Everything the server says to `data` until it closes the connection."""
        address = urlsplit(server.url)
        with socket.create_connection(
            (address.hostname or "", address.port or 0), within_s
        ) as connection:
            connection.sendall(data)
            answer = b""
            while received := connection.recv(65536):
                answer += received
        return answer

    def test_silence_and_half_headers_are_ended(self, strict_server: Server) -> None:
        for data in (b"", b"GET /v1/options HTTP/1.1\r\nHost:"):
            assert b" 408 " in self.ended(strict_server, data, within_s=10)

    def test_endless_headers_are_ended(self, strict_server: Server) -> None:
        head = b"GET /v1/options HTTP/1.1\r\n" + b"X-Filler: 0123456789\r\n" * 20_000
        with suppress(ConnectionError):
            assert b" 431 " in self.ended(strict_server, head, within_s=10)
        assert httpx.get(f"{strict_server.management_url}/livez").status_code == 200

    def test_large_headers_that_come_at_once_are_refused(self, strict_server: Server) -> None:
        head = b"GET /v1/options HTTP/1.1\r\n" + b"X-Filler: 0123456789\r\n" * 3_500 + b"\r\n"
        with suppress(ConnectionError):
            answer = self.ended(strict_server, head, within_s=10)
            assert b" 431 " in answer
            assert b" 200 " not in answer

    def test_what_is_no_http_gets_a_problem(self, strict_server: Server) -> None:
        answer = self.ended(strict_server, b"BREW coffee\r\n\r\n", within_s=10)
        assert b"application/problem+json" in answer
        assert b'"bad_request"' in answer

    def test_probes_answer_when_the_connections_are_used_up(self, strict_server: Server) -> None:
        address = urlsplit(strict_server.url)
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(
                    socket.create_connection((address.hostname or "", address.port or 0), 10)
                )
            for probe in ("livez", "readyz"):
                answer = httpx.get(f"{strict_server.management_url}/{probe}", timeout=5)
                assert answer.status_code == 200
        deadline = time.monotonic() + 10
        while True:
            with suppress(httpx.TransportError), strict_server.client() as client:
                assert client.get("/openapi.json").status_code == 200
                return
            assert time.monotonic() < deadline
