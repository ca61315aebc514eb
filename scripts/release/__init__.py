"""What makes a release, and checks it: `make release`."""
