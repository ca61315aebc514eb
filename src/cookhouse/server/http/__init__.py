"""The server's routes and its page: requests are decoded, checked and handed on."""
