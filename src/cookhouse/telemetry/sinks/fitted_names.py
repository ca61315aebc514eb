"""Names of metrics as tools take them: one that a tool does not take becomes another, and two never become the same."""

import hashlib
import re


def mlflow_name(name: str) -> str:
    """MLflow takes letters, digits and some signs, in a path that is whole and stays where it is."""
    is_path = all(part not in ("", ".", "..") for part in name.split("/")) and not name.startswith("..")
    is_taken = is_path and re.fullmatch(r"[\w\-. :/]{1,250}", name)
    return name if is_taken else _fitted(name, r"^\w\-. :/")


def opentelemetry_name(name: str) -> str:
    """OTel takes a letter and then at most 254 letters, digits and `_./-`."""
    return name if re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_./-]{0,254}", name) else f"m_{_fitted(name, '^a-zA-Z0-9_./-')}"


def wandb_name(name: str) -> str:
    """W&B drops a name that is empty, and has names of its own that begin with `_`."""
    return name if name and not name.startswith("_") else _fitted(name, r"^\w\-. :/")


_MAX_CHARACTERS = 200


def _fitted(name: str, others: str) -> str:
    """Characters of a name that a tool takes, and eight digits of a hash of all of it. `others` are the characters that
    it does not take, as the inside of a class of a regular expression.
    """
    parts = re.sub(f"[{others}]", "_", name[:_MAX_CHARACTERS]).split("/")
    stem = "/".join(part for part in parts if part.strip("._")).strip("_.") or "metric"
    return f"{stem}_{hashlib.blake2b(name.encode(errors='surrogatepass'), digest_size=4).hexdigest()}"
