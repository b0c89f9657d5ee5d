"""A page for whoever is woken: complete, and nothing in it that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hunyuan_ocr.errors import error_classes
from hunyuan_ocr.settings import PREFIX, Settings
from scripts.chart.render import CHART, ROOT

BOOKS = ROOT / "docs" / "runbooks"
PAGES = sorted(BOOKS.glob("HunyuanOcr*.md"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
# What can be refused that has a name of its own, in a table or in a sentence.
_CODE = re.compile(r"\b(?:4\d\d|5\d\d) `(\w+)`")


@each_page
def test_it_says_what_users_feel_what_to_look_at_and_what_to_do(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.stem}\n")
    assert "**What callers notice.**" in text
    look, do = text.split("\n## Look\n")[1].split("\n## Do\n")
    assert "kubectl" in look
    assert do.strip()
    assert len(text.splitlines()) < 60, "more than a page"


@each_page
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        assert (BOOKS / target).exists(), target


@each_page
def test_settings_values_and_codes_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    assert set(re.findall(r"HYOCR_[A-Z_]*[A-Z]", text)) <= settings
    codes = {error.code for error in error_classes()}
    assert set(_CODE.findall(text)) <= codes
    values = (CHART / "values.yaml").read_text("utf-8")
    for dotted in re.findall(r"`((?:autoscaling|sidecar|engine|gpu|networkPolicy)\.[\w.]+)`", text):
        assert f" {dotted.rsplit('.', 1)[1]}:" in values, dotted


def test_the_first_table_names_every_code_that_spends_the_budget() -> None:
    text = (BOOKS / "HunyuanOcrErrorBudgetBurn.md").read_text("utf-8")
    bad = {
        error.code
        for error in error_classes()
        if error.status >= 500 or error.code in ("queue_full", "deadline_unreachable")
    }
    table = text.split("## Look")[1].split("```")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= bad - {"unavailable"}
