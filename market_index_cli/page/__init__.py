"""The web page that shows pairs and their order books: static files and their routes."""
