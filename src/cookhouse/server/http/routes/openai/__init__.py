"""The routes of OpenAI's clients: an application of its own, whose errors have their form."""

from cookhouse.server.http.routes.openai.endpoint import create_endpoint

__all__ = ["create_endpoint"]
