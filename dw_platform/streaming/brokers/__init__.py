"""One adapter a file; each contains its broker's client and nothing else. `open_broker` imports the one it needs."""
