"""OpenAI's client over the address of a rollout."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from cookhouse.agents.endpoint import Address
from cookhouse.errors import InputError
from cookhouse.extras import install_command


def open_client(address: Address) -> AbstractAsyncContextManager[Any]:
    """An `openai.AsyncOpenAI`, whose connections are closed with it. Raises `InputError` where openai is missing."""
    try:
        import openai
    except ImportError as error:
        raise InputError(f"agents are given a client of openai: {install_command('agents')}") from error
    # Nothing of the environment decides where the calls of a rollout go, and loopback has no certificate.
    http = openai.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return openai.AsyncOpenAI(base_url=address.openai_url, api_key=address.key, http_client=http)
