"""The server of `market-index serve`: uvicorn with limits, worker processes, metrics and CORS."""
