"""Reading rows: conversations, preferences, comparisons and prompts, in the shapes that people have them in."""
