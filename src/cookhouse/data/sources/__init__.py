"""Sources of rows: files, the hub, folders laid out as it, functions; all read in blocks."""
