"""The order books of the ledger, read from a running Kupo."""
