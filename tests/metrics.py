"""Reads `/metrics` with the parser of prometheus-client."""

from __future__ import annotations

from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tests.service import HttpResponse, Service

Samples: TypeAlias = dict[tuple[str, ...], float]
"""Values by the name of the metric and its labels, such as `("requests_total", "endpoint=/livez", "status=200")`."""


def samples_of_text(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *(f"{name}={value}" for name, value in sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def samples_of(answer: HttpResponse) -> Samples:
    assert answer.status == 200
    return samples_of_text(answer.body.decode())


def scrape(service: Service, prefix: str = "") -> Samples:
    return samples_of(service.request(f"{prefix}/metrics"))
