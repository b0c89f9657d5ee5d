"""Objects of KEDA and the Prometheus operator, held against the operators' own definitions."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from scripts.chart.definitions import provide, schemas
from scripts.chart.generate import GOLDEN
from scripts.chart.render import CUSTOM_KINDS, Manifest, manifests


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    return schemas(provide())


def custom(path: Path) -> list[Manifest]:
    found = manifests(path.read_text("utf-8"))
    return [document for document in found if document["kind"] in CUSTOM_KINDS]


def test_every_object_fits_its_definition(defined: dict[str, Any]) -> None:
    documents = [document for path in GOLDEN.glob("*.yaml") for document in custom(path)]
    assert {document["kind"] for document in documents} == set(CUSTOM_KINDS)
    for document in documents:
        jsonschema.validate(document, defined[document["kind"]])


def test_a_field_that_does_not_exist_is_found(defined: dict[str, Any]) -> None:
    for document in custom(GOLDEN / "keda.yaml"):
        wrong = deepcopy(document)
        wrong["spec"]["behaviour"] = "static"
        with pytest.raises(jsonschema.ValidationError, match="behaviour"):
            jsonschema.validate(wrong, defined[document["kind"]])
