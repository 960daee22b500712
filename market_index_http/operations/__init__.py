"""Optional routes for operators and tools, to be added to the routes of the app."""
