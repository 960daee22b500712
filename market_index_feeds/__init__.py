"""What fills a `LiveIndex`: a file, an embedded store, a distributed one."""
