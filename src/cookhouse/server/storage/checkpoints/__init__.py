"""Checkpoints on disk: written, copied, checked, downloaded, and found in the folders of other servers."""
