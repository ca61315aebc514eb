"""The server's page for whoever operates it: a shell without data, and the script that asks for these with a key."""

from cookhouse.server.http.page.page import page_routes

__all__ = ["page_routes"]
