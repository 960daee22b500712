"""Converts docs/openapi.yaml to the JSON that the server serves. `python -m tests.openapi` writes that file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
YAML = ROOT / "docs" / "openapi.yaml"
JSON = ROOT / "market_index_http" / "operating" / "openapi.json"


def contract() -> Any:
    return yaml.safe_load(YAML.read_text())


def as_json() -> str:
    return json.dumps(contract(), indent=1) + "\n"


if __name__ == "__main__":
    JSON.write_text(as_json())
