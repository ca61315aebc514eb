"""What the pages under docs/ have beside what is written there by hand."""
