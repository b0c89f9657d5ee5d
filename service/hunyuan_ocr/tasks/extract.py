"""JSON schemas that callers send: which are taken, and whether an answer fits.

A schema is a program that a stranger runs here, so it is checked before use: its size, its
depth, what its references expand to, and no keyword whose cost can explode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_DEPTH = 24
# Objects and lists of the schema, references expanded. Real forms have below a hundred.
MAX_NODES = 400
MAX_CHARACTERS = 32_768
# Nodes of the answer times the schemas that each may be tried against: about a quarter of a
# second of checking at worst, during which the service does nothing else.
MAX_WORK = 50_000
MAX_PROBLEMS = 20

# `pattern` can take exponential time (Python's `re` backtracks), `uniqueItems` quadratic; the
# others resolve at run time or move the base that local references start from.
REFUSED = frozenset(
    {"pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
    | {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor"}
    | {"$id", "id", "$vocabulary"}
)
# Below these keywords stand names that the caller chose, or data; neither are keywords.
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
# What a node of the answer can be tried against beside the schema of its place.
_ALTERNATIVES = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contains", "enum", "const"}
    | {"dependentSchemas", "propertyNames"}
)
_DATA = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})

# An empty registry fetches nothing; the library's default opens URLs.
_NO_RETRIEVAL: Registry[bool | Mapping[str, Any]] = Registry()


def schema_problems(json_schema: dict[str, object]) -> list[str]:
    """Why a schema is not taken; empty if it is. Quotes nothing but keywords of JSON Schema.

    To be asked once a request: for a schema of the largest size it takes some 70 ms.
    """
    if problems := _limit_problems(json_schema):
        return problems
    try:
        Draft202012Validator.check_schema(json_schema)
    except SchemaError as error:
        return [f"the schema is not valid JSON Schema 2020-12 at the keyword {_keyword(error)}"]
    return []


def _limit_problems(json_schema: dict[str, object]) -> list[str]:
    """What makes a schema costly or unsafe to apply."""
    depth, nodes, characters = _measure(json_schema)
    if depth > MAX_DEPTH:
        return [f"the schema is nested deeper than {MAX_DEPTH} levels"]
    if nodes > MAX_NODES or characters > MAX_CHARACTERS:
        return [f"the schema is larger than {MAX_NODES} nodes or {MAX_CHARACTERS} characters"]
    refused = {key for part in _schemas(json_schema) for key in part if key in REFUSED}
    if refused:
        return [f"the keyword {key} is not supported" for key in sorted(refused)]
    return _reference_problems(json_schema)


def validate(value: object, json_schema: dict[str, object]) -> list[str]:
    """Where a value does not fit, as `<JSON pointer>: <keyword>`; empty if it does.

    The first `MAX_PROBLEMS` only. Pointers hold names of the answer's fields, never its values.
    The schema must be one that `schema_problems` takes.
    """
    if problems := _limit_problems(json_schema):
        return problems
    if too_deep(value) or _measure(value)[1] * _alternatives(json_schema) > MAX_WORK:
        return [": too large to check"]
    validator = Draft202012Validator(json_schema, registry=_NO_RETRIEVAL)
    try:
        found = [
            f"{_pointer(error.absolute_path)}: {_keyword(error)}"
            for error, _ in zip(validator.iter_errors(value), range(MAX_PROBLEMS), strict=False)
        ]
    except (Unresolvable, RecursionError, OverflowError):
        return [": the schema cannot be applied"]
    return found


def schema_for_fields(fields: Sequence[str]) -> dict[str, object]:
    """The schema of an answer to `fields`: an object; a field the page lacks may be missing."""
    return {"type": "object", "properties": {name: {} for name in fields}}


def too_deep(value: object) -> bool:
    """Whether a JSON value is nested deeper than anything here or behind it should recurse."""
    return _measure(value)[0] > MAX_DEPTH


def property_names(json_schema: dict[str, object]) -> set[str]:
    """The names of all properties that a schema mentions, at any depth."""
    maps = (part.get("properties") for part in _schemas(json_schema))
    return {name for named in maps if isinstance(named, dict) for name in named}


def _alternatives(json_schema: dict[str, object]) -> int:
    """An upper bound of the schemas that one node of an answer is tried against."""
    total = 1
    for part in _schemas(json_schema):
        beside = {key: part[key] for key in part if key in _ALTERNATIVES}
        refers = any("$ref" in schema for schema in _schemas(list(beside.values())))
        total += MAX_NODES if refers else _measure(beside)[1] - 1
    return total


def _measure(value: object) -> tuple[int, int, int]:
    """Depth, nodes (objects, lists and scalars) and characters of a JSON value, iteratively."""
    depth = nodes = characters = 0
    level: list[object] = [value]
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        characters += sum(len(item) for item in level if isinstance(item, str))
        characters += sum(len(str(k)) for item in level if isinstance(item, dict) for k in item)
        level = [child for item in level for child in _children(item)]
        if depth > MAX_DEPTH:
            break
    return depth, nodes, characters


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _schemas(schema: object) -> Iterator[dict[str, object]]:
    """Every subschema of a schema, itself first; names and data are passed over."""
    if isinstance(schema, list):
        for item in schema:
            yield from _schemas(item)
    if not isinstance(schema, dict):
        return
    yield schema
    for key, part in schema.items():
        if key in _NAMED and isinstance(part, dict):
            for named in part.values():
                yield from _schemas(named)
        elif key not in _DATA:
            yield from _schemas(part)


def _reference_problems(root: dict[str, object]) -> list[str]:
    """References must be local, resolve, not come back to themselves and expand to little."""
    try:
        size = _expanded(root, root, {}, frozenset())
    except LookupError as error:
        return [str(error.args[0])]
    return [] if size <= MAX_NODES else [f"references expand to more than {MAX_NODES} nodes"]


def _expanded(
    part: object, root: dict[str, object], known: dict[str, int], open_: frozenset[str]
) -> int:
    """Nodes of a part with its references expanded; each target is measured once."""
    total = 1
    for schema in _schemas(part):
        total += 1 + len(schema)
        if "$ref" not in schema:
            continue
        reference = str(schema["$ref"])
        if reference in open_:
            raise LookupError("the schema refers to itself")
        if len(open_) == MAX_DEPTH:
            raise LookupError(f"references lead to more than {MAX_DEPTH} others")
        if reference not in known:
            target = _resolve(reference, root)
            known[reference] = _expanded(target, root, known, open_ | {reference})
        total += known[reference]
    return total


def _resolve(reference: str, root: dict[str, object]) -> object:
    """What a local reference points to; raises `LookupError` with the reason."""
    if not reference.startswith("#/"):
        raise LookupError("only references of the form #/… are supported")
    found: object = root
    for name in reference[2:].split("/"):
        key = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            raise LookupError("a reference points nowhere")
        found = found[key]
    if not isinstance(found, dict | bool):
        raise LookupError("a reference points to what is no schema")
    return found


def _pointer(path: Iterable[str | int]) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{part}" for part in parts)


def _keyword(error: ValidationError | SchemaError) -> str:
    return str(error.validator)
