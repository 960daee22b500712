"""The server of `market-index serve`: uvicorn, worker processes and CORS."""
