"""Routes for operators. Each module adds one kind, and is imported only by those who ask for it.

- `probes`: `/livez`, `/readyz` and `/healthz`.
- `metrics`: `/metrics` for Prometheus. It requires the extra `metrics`.
- `description`: `/openapi.json`.
"""
