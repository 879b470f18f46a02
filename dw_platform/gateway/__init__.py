"""The HTTP front door: producers publish and read over HTTP, and feel pressure as headers, delays and 429."""
