"""What runs in the minutes that a machine with a GPU is at hand: `python3 -m scripts.gpu_check WHEELS`."""
