"""Schemas that are taken apply; those that could hurt are refused."""

from __future__ import annotations

import time

import pytest

from hunyuan_ocr.tasks.extract import (
    MAX_DEPTH,
    property_names,
    schema_for_fields,
    schema_problems,
    too_deep,
    validate,
)

Schema = dict[str, object]

INVOICE: Schema = {
    "type": "object",
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "pattern": {"type": "string", "enum": ["a", "b"]},
        "$id": {"const": {"$ref": "data"}},
    },
    "required": ["total"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "properties": {"a/b": {"type": "string"}}}},
}


def test_an_honest_schema_is_taken() -> None:
    assert schema_problems(INVOICE) == []
    assert validate({"total": 1.5, "items": [{"a/b": "x"}], "pattern": "a"}, INVOICE) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, ": type"),
        ({}, ": required"),
        ({"total": -1}, "/total: minimum"),
        ({"total": 1, "items": [{"a/b": 5}]}, "/items/0/a~1b: type"),
        ({"total": 1, "extra": 5}, ": additionalProperties"),
        ({"total": 1, "$id": 5}, "/$id: const"),
    ],
)
def test_problems_name_place_and_keyword_and_no_value(value: object, problem: str) -> None:
    assert validate(value, INVOICE) == [problem]


def _deep(levels: int) -> Schema:
    schema: Schema = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def _doubling(levels: int) -> Schema:
    defs: dict[str, object] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": defs | {f"a{levels}": {}}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "http://127.0.0.1/x"}, "only references"),
        ({"$ref": "file:///etc/passwd"}, "only references"),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "only references"),
        ({"items": {"$ref": "#"}}, "only references"),
        ({"$ref": "#/$defs/none"}, "nowhere"),
        ({"$ref": "#/title", "title": "a"}, "no schema"),
        ({"properties": {"a": {"$ref": "#/required"}}, "required": ["a"]}, "no schema"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "itself"),
        ({"properties": {"a": {"pattern": "(a+)+$"}}}, "pattern"),
        ({"anyOf": [{"patternProperties": {"(a+)+$": {}}}]}, "patternProperties"),
        ({"items": {"uniqueItems": True}}, "uniqueItems"),
        ({"$id": "http://x/y"}, "$id"),
        ({"$dynamicRef": "#a"}, "$dynamicRef"),
        ({"type": "strnig"}, "anyOf"),
        ({"minimum": "1"}, "type"),
        (_deep(MAX_DEPTH), "deeper"),
        (_deep(100_000), "deeper"),
        ({"properties": {str(n): {} for n in range(5000)}}, "larger"),
        ({"description": "a" * 100_000}, "larger"),
        (_doubling(20), "expand"),
    ],
)
def test_schemas_that_are_refused(schema: Schema, words: str) -> None:
    problems = schema_problems(schema)
    assert len(problems) == 1
    assert words in problems[0]


def test_a_chain_of_references_is_bounded() -> None:
    defs: dict[str, object] = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(60)}
    schema: Schema = {"$ref": "#/$defs/a0", "$defs": defs | {"a60": {}}}
    assert "references lead" in schema_problems(schema)[0]


def test_a_large_answer_against_a_large_schema_is_not_checked() -> None:
    schema: Schema = {"items": {"anyOf": [{"const": n} for n in range(120)]}}
    assert schema_problems(schema) == []
    assert validate(list(range(120)), schema) == []
    start = time.process_time()
    assert validate(list(range(30_000)), schema) == [": too large to check"]
    assert time.process_time() - start < 0.5


def test_a_large_table_against_a_plain_schema_is_checked() -> None:
    row: Schema = {"type": "object", "properties": {str(n): {"type": "string"} for n in range(8)}}
    rows = [{str(n): "x" for n in range(8)} for _ in range(1000)]
    assert validate(rows, {"type": "array", "items": row}) == []
    assert validate([*rows, {"0": 1}], {"type": "array", "items": row}) == ["/1000/0: type"]


def test_a_schema_of_another_draft_is_read_as_2020_12() -> None:
    schema: Schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/a"}},
    }
    assert schema_problems(schema) == []
    assert validate({"a": 1}, schema) == ["/a: type"]


def test_fields() -> None:
    schema = schema_for_fields(["a", "b"])
    assert schema_problems(schema) == []
    assert validate({"a": [1]}, schema) == []
    assert validate([], schema) == [": type"]


def test_names_and_depth() -> None:
    assert property_names(INVOICE) == {"total", "items", "pattern", "$id", "a/b"}
    assert not too_deep({"a": [1]})
    nested: object = 1
    for _ in range(50_000):
        nested = [nested]
    assert too_deep(nested)
