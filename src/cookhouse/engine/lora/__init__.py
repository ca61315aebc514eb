"""Low-rank adapters: where they attach, how they lie in memory, and the layers that apply those of many runs."""
