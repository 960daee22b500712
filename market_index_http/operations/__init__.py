"""Optional routes for operators and tools: add them to the routes of the app."""
