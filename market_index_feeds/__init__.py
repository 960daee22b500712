"""Sources and stores of order books."""
