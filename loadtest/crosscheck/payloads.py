"""Write the pages that the kit draws as aiperf and guidellm read them.

    python -m loadtest.crosscheck.payloads FOLDER [--pages 1024x768] [--distinct 200]

chat.jsonl: whole bodies of the chat route, for aiperf; pages.jsonl: pages as base64 with the
prompt, for guidellm.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path

from loadtest.pages import DEFAULT_MIX, Page, draw_pages, read_mix
from loadtest.routes import MODEL, PROMPT, Chat, Route, build


def write(folder: Path, pages: list[Page], chat: Chat) -> None:
    """Both files, a line for each page."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "chat.jsonl").open("wb") as bodies, (folder / "pages.jsonl").open("w") as plain:
        for page in pages:
            bodies.write(build(Route.CHAT, page, chat).body + b"\n")
            encoded = base64.b64encode(page.content).decode()
            image = f"data:{page.media_type};base64,{encoded}"
            plain.write(json.dumps({"prompt": PROMPT, "image": image}, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", default=DEFAULT_MIX, help="WIDTHxHEIGHT[@LINES][=SHARE],…")
    parser.add_argument("--distinct", type=int, default=200, help="different pages")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--body", type=json.loads, default={}, help="more of the body, JSON")
    options = parser.parse_args()
    pages = draw_pages(read_mix(options.pages), options.distinct)
    write(options.folder, pages, Chat(options.model, options.body))


if __name__ == "__main__":
    main()
