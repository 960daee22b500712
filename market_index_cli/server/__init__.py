"""The server of `market-index serve`: uvicorn with limits, worker processes, CORS and allowed hosts."""
