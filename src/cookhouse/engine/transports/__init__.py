"""Ways to run a worker: what carries commands to it and events back. Nothing above knows which one it is."""
