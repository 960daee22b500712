"""Converts docs/openapi.yaml to the JSON that the server serves. `python -m tests.openapi` writes that file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

ROOT = Path(__file__).resolve().parents[1]
YAML = ROOT / "docs" / "openapi.yaml"
JSON = ROOT / "market_index_http" / "operating" / "openapi.json"


def contract() -> Any:
    return yaml.safe_load(YAML.read_text())


@cache
def validator(name: str) -> Any:
    """Return the validator of a schema of the description."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": contract()["components"]}
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def as_json() -> str:
    return json.dumps(contract(), indent=1) + "\n"


if __name__ == "__main__":
    JSON.write_text(as_json())
