"""What a server's process loads."""

import subprocess
import sys

PROGRAM = """
import pkgutil, sys
import cookhouse.server
from cookhouse.server.startup.libraries import hide_torch, loading

hide_torch()
loading().result()
for module in pkgutil.walk_packages(cookhouse.server.__path__, "cookhouse.server."):
    if ".migrations" not in module.name:  # alembic's, which runs them
        __import__(module.name)
from cookhouse.models.tokenizers import get_tokenizer

tokenizer = get_tokenizer("cookhouse/tiny")
messages = [{"role": "user", "content": "hello"}]
template = "{% for message in messages %}{{ message.content }}{% endfor %}"
assert tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False) == "hello"
assert tokenizer.decode(tokenizer.encode("hello")) == "hello"
print([name for name, module in sys.modules.items() if name.startswith("torch") and module is not None])
"""


def test_a_server_loads_no_torch() -> None:
    """All of its modules, and a tokenizer: the engine's process beside it pays for torch already."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
