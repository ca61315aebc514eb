"""Two weights asked the same thing: what is asked, the engine that answers, and what people say of the answers."""
