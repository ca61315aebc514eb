"""Encryption of files to their readers' keys, in the age format (https://age-encryption.org/v1)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyrage

from cookhouse.errors import InputError
from cookhouse.files import sync

SUFFIX = ".age"
_MAX_RECIPIENTS = 64
"""Each adds some hundred bytes to every file."""
_MAX_KEY_CHARS = 4096
"""An SSH key of RSA with 4096 bits has 750, and a comment."""
_SHOWN_CHARS = 16
"""Of what is no public key: it may be a secret one, of which these say no more than that."""

Recipients = Sequence[Any]
"""Public keys, as objects of pyrage's."""


def parse_recipients(texts: Sequence[str]) -> Recipients:
    """Public keys: `age1...`, or of SSH.

    Raises:
        InputError: there are none, too many, or one is no such key.
    """
    if not 1 <= len(texts) <= _MAX_RECIPIENTS:
        raise InputError(
            f"age_encryption_recipients has {len(texts)} keys; give 1 to {_MAX_RECIPIENTS}, or leave it out to save "
            "files that are not encrypted"
        )
    return [_recipient(index, text) for index, text in enumerate(texts)]


def _recipient(index: int, text: str) -> Any:
    try:
        if len(text) > _MAX_KEY_CHARS:
            raise pyrage.RecipientError(f"it has {len(text)} characters")
        return _key(text)
    except (UnicodeEncodeError, pyrage.RecipientError) as error:
        raise InputError(
            f"age_encryption_recipients[{index}], {text[:_SHOWN_CHARS]!r}, cannot be encrypted to ({error}); allowed "
            "are public keys of age (age1...) and of SSH (ssh-ed25519, ssh-rsa with 2048 to 4096 bits)"
        ) from None


def _key(text: str) -> Any:
    try:
        if text.startswith("ssh-"):
            return pyrage.ssh.Recipient.from_str(text)
        recipient = pyrage.x25519.Recipient.from_str(text)
        pyrage.encrypt(b"", [recipient])
        return recipient
    except BaseException as error:
        # What pyrage raises when it panics is no `Exception`. It does so of an SSH key of zeros, and when
        # something is encrypted to an age key whose shared secrets are all 0.
        if type(error).__name__ == "PanicException":
            raise pyrage.RecipientError("it cannot be a key") from None
        raise


def encrypt_files(folder: Path, recipients: Recipients) -> None:
    """Put `NAME.age` in place of each file of a folder. A file is read and written in pieces of some KiB.

    Raises:
        OSError: the disk is full, or fails; some files may be encrypted then, and others not.
    """
    for file in sorted(folder.iterdir()):
        encrypted = file.with_name(file.name + SUFFIX)
        # Plain files of Python's, not paths: pyrage holds the interpreter's lock but while such a file is read or
        # written.
        with file.open("rb", buffering=0) as source, encrypted.open("xb", buffering=0) as target:
            _encrypt(source, target, recipients)
        sync(encrypted)
        file.unlink()
    sync(folder)


def _encrypt(source: BinaryIO, target: BinaryIO, recipients: Recipients) -> None:
    output = _Output(target)
    try:
        pyrage.encrypt_io(source, output, recipients)
    except pyrage.EncryptError as error:
        raise output.error or OSError(str(error)) from error
    if output.error is not None:
        raise output.error


class _Output:
    """A file to write to, which remembers why it could not: pyrage does not report a failure of its last write."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Nothing waits here."""
