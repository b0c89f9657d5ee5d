"""Read a picture through the Service and compare the text: what `helm test` runs.

    python3 read_test.py URL EXPECTED PICTURE_AS_BASE64 read|refused

Waits until a pod is ready first, since Helm 3's `--wait` does not with one replica. With `refused`,
API keys are on and no key was given: the answer must be 401.
"""

import base64
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

READY_TIMEOUT_S = 240


def wait_until_ready(url: str) -> None:
    """The Service has no endpoint until a pod is ready, so any answer is the service's own."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/v1/options", timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"no pod is ready after {READY_TIMEOUT_S} s: {error}") from error
            time.sleep(1)
        else:
            return


def read(url: str, picture: Path, expected: str) -> None:
    done = subprocess.run(
        ["hunyuan-ocr", "read", "--server", url, str(picture)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"the picture was not read: {done.stderr.strip()}")
    if missing := [word for word in expected.split() if word not in done.stdout.split()]:
        raise SystemExit(f"not in the answer: {missing}; the answer:\n{done.stdout}")
    print(f"read through {url}: {' '.join(done.stdout.split())}")


def refused(url: str, picture: Path) -> None:
    headers = {"Content-Type": "image/png"}
    request = urllib.request.Request(f"{url}/v1/ocr", picture.read_bytes(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            raise SystemExit(f"keys are on, and a caller without one got {answer.status}")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise SystemExit(f"keys are on, and a caller without one got {error.code}") from error
    print("refused without a key, as it should be; set test.keySecret to read a picture too")


def main() -> None:
    url, expected, encoded, mode = sys.argv[1:]
    picture = Path("/tmp/page.png")
    picture.write_bytes(base64.b64decode(encoded))
    wait_until_ready(url)
    if mode == "refused":
        refused(url, picture)
    else:
        read(url, picture, expected)


main()
