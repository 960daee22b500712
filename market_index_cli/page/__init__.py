"""The web page that shows the pairs and their order books: static files, and their routes."""
