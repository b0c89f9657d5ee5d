"""API keys: who is calling, from a mounted file of salted hashes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from pathlib import Path

from starlette.datastructures import Headers

from hunyuan_ocr.errors import Unauthorized

_log = logging.getLogger(__name__)

_SALT_BYTES = 16
_SECRET_BYTES = 32


class KeyFileError(ValueError):
    """The key file cannot be read; the message says what to fix."""


def _digest(salt: str, secret: str) -> str:
    # Secrets are 256 random bits, so a fast hash is enough; the salt keeps equal ones apart.
    return hashlib.sha256(f"{salt}.{secret}".encode()).hexdigest()


def new_key(key_id: str) -> tuple[str, str]:
    """Make a key for `key_id`: what the caller sends, and the line for the key file."""
    if not key_id or "." in key_id or ":" in key_id or not key_id.isprintable():
        raise ValueError("a key's id is printable and holds no '.' and no ':'")
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    salt = secrets.token_hex(_SALT_BYTES)
    return f"{key_id}.{secret}", f"{key_id}:{salt}:{_digest(salt, secret)}"


class KeyRing:
    """The keys of a file with lines `<id>:<salt>:<hash>`, read again when the file changes.

    With `path` None every caller is let in, and has no name.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._stale = False
        self._entries: dict[str, tuple[str, str]] = {}
        if path is not None:
            self._refresh(path)

    def tenant(self, headers: Headers) -> str | None:
        """The id of the key in `headers`, None where no keys are asked for. Raises Unauthorized."""
        if self._path is None:
            return None
        self._refresh(self._path)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        key_id, _, secret = given.partition(".")
        # An unknown id costs the same comparison as a known one.
        salt, expected = self._entries.get(key_id, ("", "0" * 64))
        if not hmac.compare_digest(_digest(salt, secret), expected):
            raise Unauthorized("no key was sent" if not given else "the key is not known")
        return key_id

    def _refresh(self, path: Path) -> None:
        """Take over a changed file; one that vanished or broke leaves the last keys in force."""
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if version != self._version:
                self._entries = _parse(path.read_text("utf-8"))
                self._version = version
        except (OSError, UnicodeDecodeError, KeyFileError) as error:
            if self._version is None:
                raise KeyFileError(f"the key file {path} cannot be used: {error}") from None
            if not self._stale:
                _log.error("the key file cannot be used: the keys read last stay in force")
            self._stale = True
        else:
            self._stale = False


def _parse(text: str) -> dict[str, tuple[str, str]]:
    """Entries by id. Raises KeyFileError naming the line that is not one."""
    entries = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.strip().split(":"):
            case [key_id, salt, digest]:
                entries[key_id] = (salt, digest)
            case _:
                raise KeyFileError(f"line {number} is not `<id>:<salt>:<hash>`")
    return entries
