"""What serves a `LiveIndex` over HTTP."""
