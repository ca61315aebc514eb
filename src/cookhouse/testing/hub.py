"""Suite that every hub client passes."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.models.hub import HubClient, HubPart, is_whole
from cookhouse.testing.contract import Contract, require

_ESCAPES = ("", "../x", "a/../b", "/etc", "a/b/c", "a b", "a/..", "https://hub/a", "x" * 500)


class HubContract(Contract[HubClient]):
    """The suite of `cookhouse.models.hub.HubClient`. `make` gives a client of a hub that has `model` and may be written
    to, with nothing of it on this machine.
    """

    model: str = "someone/some-model"
    """A model that the hub has, with tokenizer and weights."""
    own: str = "someone/uploaded"
    """A name under which nothing is yet, and which may be written to."""

    def test_downloads_what_is_asked_for(self) -> None:
        hub = self.make()
        for part in HubPart:
            folder = hub.download(self.model, part)
            require(
                is_whole(folder, part), f"download gives a folder with all of the {part.value}, not {_names(folder)}"
            )

    def test_finds_what_was_downloaded(self) -> None:
        hub = self.make()
        require(hub.find(self.model, HubPart.TOKENIZER) is None, "find gives None for what was never downloaded")
        first = hub.download(self.model, HubPart.MODEL)
        for part in HubPart:
            found = hub.find(self.model, part)
            require(found is not None and is_whole(found, part), f"find gives the {part.value} once it was downloaded")
        again = hub.download(self.model, HubPart.MODEL)
        require(_content(first) == _content(again), "a second download gives the same files")

    def test_gives_back_what_was_uploaded(self) -> None:
        hub, folder = self.make(), self.folder()
        source = hub.download(self.model, HubPart.MODEL)
        for name, content in _content(source).items():
            (folder / name).write_bytes(content)
        address = hub.upload(folder, self.own)
        require(self.own in address, f"upload gives an address that names what was uploaded, not {address!r}")
        back = _content(hub.download(self.own, HubPart.MODEL))
        require(_content(folder).items() <= back.items(), "what was uploaded is what is downloaded")

    def test_a_folder_that_is_not_there_is_refused(self) -> None:
        hub = self.make()
        missing = self.folder() / "missing"
        try:
            hub.upload(missing, self.own)
        except InputError as error:
            require("missing" in str(error), f"the refusal names the folder, unlike {str(error)!r}")
        else:
            require(False, "upload of a folder that is not there is refused with an InputError")

    def test_a_name_that_cannot_be_one_is_refused(self) -> None:
        hub, folder = self.make(), self.folder()
        for name in _ESCAPES:
            calls: Mapping[str, Callable[[], object]] = {
                "find": partial(hub.find, name, HubPart.TOKENIZER),
                "download": partial(hub.download, name, HubPart.TOKENIZER),
                "upload": partial(hub.upload, folder, name),
            }
            for verb, call in calls.items():
                try:
                    call()
                except InputError:
                    continue
                require(False, f"{verb} of {name[:20]!r} is refused with an InputError")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _content(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
