"""What `cookhouse serve` refuses before it starts anything."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.server.storage.checkpoints.test_checkpoints import NEW, fill

from cookhouse.cli import main
from cookhouse.cli.main import app
from cookhouse.cli.serve import serve
from cookhouse.cli.serve.command import _announce, _run_beside
from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.offline import add_checkpoint
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store
from cookhouse.service.local import default_state_dir
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"cannot listen on 127.0.0.1 port {port} \(Address already in use\)"):
            serve(port=port, state_dir=tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_other_machines_need_a_key_of_the_users_choice(host: str) -> None:
    with pytest.raises(InputError, match="open to other machines; give the keys to accept with --api-key"):
        serve(host=host, api_key=" , ")


def test_a_key_that_the_sdk_would_not_send() -> None:
    with pytest.raises(InputError, match="starts with 'sk-a'"):
        serve(api_key="tml-good,sk-abcdef")


def test_state_is_kept_where_the_desktop_says() -> None:
    assert default_state_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/cookhouse/serve")
    assert default_state_dir({}) == Path.home() / ".local/state/cookhouse/serve"


def test_when_a_client_is_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a setting that `serve` shows and does not hand on, or that would end living clients."""
    seen: list[Sequence[str]] = []

    async def take(*arguments: Any) -> None:
        seen.append(arguments[-1])

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", take)
    serve(port=0, state_dir=tmp_path, silent_minutes=2.0, session_minutes=10.0)
    assert list(seen[0]) == ["--silent-minutes", "2.0", "--session-minutes", "10.0", "--drain-seconds", "30.0"]
    serve(port=0, state_dir=tmp_path, stable_reinforce="own")
    assert list(seen[1])[-2:] == ["--stable-reinforce", "own"]
    serve(port=0, state_dir=tmp_path, checkpoints="s3://bucket/here")
    assert list(seen[2])[-2:] == ["--checkpoints", "s3://bucket/here"]
    serve(port=0, state_dir=tmp_path, as_hosted=True, max_samples=5, max_samplers=3)
    assert list(seen[3])[-5:] == ["--as-hosted", "--max-samples", "5", "--max-samplers", "3"]
    for option in ("--silent-minutes", "--session-minutes"):
        with pytest.raises(SystemExit) as caught:
            main(["serve", option, "0.1"])
        assert caught.value.code == 2
        assert option in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "handed"),
    [
        (["--ray"], ["--ray", "local"]),
        (["--ray", "10.0.0.1:6379"], ["--ray", "10.0.0.1:6379"]),
        (["--ray=auto", "--worker-gpus", "0.5"], ["--ray", "auto", "--worker-gpus", "0.5"]),
        (["--ray", "--worker-cpus", "2"], ["--ray", "local", "--worker-cpus", "2"]),
        (["--ray", "--", "python", "--ray"], ["--ray", "local"]),
    ],
)
def test_ray_is_asked_for_with_and_without_an_address(
    words: list[str], handed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch an option, or the command behind it, taken for the address."""
    seen: list[Sequence[Any]] = []

    async def take(*arguments: Any) -> int:
        seen.append(arguments[-2:])
        return 0

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", take)
    words = ["serve", "--port", "0", "--state-dir", str(tmp_path), *words]
    with contextlib.suppress(typer.Exit):
        typer.main.get_command(app)(words, standalone_mode=False)
    ((command, options),) = seen
    assert list(options)[: len(handed)] == handed
    assert command == (["python", "--ray"] if "--" in words else [])


def test_every_model_named_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch the last -m taken for the only one."""
    served: list[object] = []

    async def start(_host: str, _port: int, models: list[str], names: str, *_rest: object) -> None:
        served.extend((models, names))

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", start)
    typer.main.get_command(app)(
        ["serve", "--port", "0", "--state-dir", str(tmp_path), "-m", "a", "-m", "b=./c"], standalone_mode=False
    )
    assert served == [["a", "b=./c"], "a, b"]


@pytest.mark.parametrize(("has_own_keys", "fragment"), [(False, "#key=tml-made"), (True, "")])
def test_the_page_is_told_with_the_key_of_the_folder(
    has_own_keys: bool, fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Would catch a page that nobody finds, and a key of the user's that is printed."""
    told = SimpleNamespace(url="http://127.0.0.1:8000", engine="cpu", api_key="tml-made")

    async def start() -> SimpleNamespace:
        return told

    async def drain() -> None:
        return None

    async def announce() -> None:
        stopping = asyncio.Event()
        stopping.set()
        service: Any = SimpleNamespace(start=start, drain=drain)
        await _announce(service, "cookhouse/tiny", has_own_keys, stopping)

    asyncio.run(announce())
    out = capsys.readouterr().out
    assert f"Its page, for a browser: http://127.0.0.1:8000/page/{fragment}\n" in out
    assert has_own_keys != ("tml-made" in out)


def test_the_database_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch rows that go into the state folder although another database was named."""
    served: list[object] = []

    def start(_state_dir: Path, *, database: str | None, **_rest: object) -> None:
        served.append(database)
        raise InputError("enough")

    monkeypatch.setattr("cookhouse.service.local.local_server", start)
    monkeypatch.setenv("COOKHOUSE_DATABASE", "postgresql://here")
    with pytest.raises(InputError, match="enough"):
        typer.main.get_command(app)(["serve", "--port", "0", "--state-dir", str(tmp_path)], standalone_mode=False)
    assert served == ["postgresql://here"]


def test_a_model_that_nobody_could_ask_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a hub id, a folder, or NAME=FOLDER"):
        serve(model=["=./folder"], state_dir=tmp_path)


def test_runs_and_a_registry_are_served_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch weights that are named and lie where the server does not look."""
    seen: list[Sequence[str]] = []

    async def take(*arguments: Any) -> None:
        seen.append(arguments[-1])

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", take)
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (tmp_path / "runs" / name / "service").mkdir(parents=True)
    path = "tinker://a/sampler_weights/b"
    saved = Checkpoint(name="b", epoch=0, batch=1, step=1, final=True, state_path=None, sampler_path=path)
    CheckpointFile(tmp_path / "runs/first/checkpoints.jsonl").append(saved)
    weights = Artifact(path="tinker://c/sampler_weights/d")
    registry = open_registry("models.db", {})
    registry.register(
        NewModel(name="sums", base_model="cookhouse/tiny", artifact=weights, run_folder=str(tmp_path / "runs/second"))
    )
    serve(port=0, state_dir=tmp_path, run=["runs/first"], registry="models.db")
    named = seen[0][6:]
    assert named[:4] == ["--run", f"runs/first={path}", "--registry", "models.db"]
    states = [str(tmp_path / "runs" / name / "service") for name in ("first", "second")]
    assert named[4:] == ["--read-state-dir", states[0], "--read-state-dir", states[1]]
    (tmp_path / "runs/second/checkpoints.jsonl").write_text("")
    with pytest.raises(InputError, match="saved no checkpoint yet"):
        serve(port=0, state_dir=tmp_path, run=["runs/second"])


class Beside:
    """A service that is there already, for a command to find."""

    def __init__(self, api_key: str = "tml-own") -> None:
        self._server = SimpleNamespace(url="http://127.0.0.1:7", api_key=api_key, engine="cpu")

    async def start(self) -> Any:
        return self._server


FOUND = ("TINKER_BASE_URL", "TINKER_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY")


@pytest.mark.parametrize(("keys", "key"), [((), "tml-own"), (("tml-a", "tml-b"), "tml-a")])
def test_a_command_finds_the_service_and_its_exit_code_is_ours(
    keys: tuple[str, ...], key: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Catches a command that goes to the hosted service, and a failure that looks like success."""
    program = f"import os, sys; print([os.environ[name] for name in {FOUND}]); sys.exit(3)"
    service: Any = Beside()
    say: list[str] = []
    assert asyncio.run(_run_beside(service, [sys.executable, "-c", program], keys, say.append)) == 3
    assert capfd.readouterr().out == f"{['http://127.0.0.1:7', key, 'http://127.0.0.1:7/v1', key]}\n"


def test_a_command_that_is_not_there_is_told_in_words() -> None:
    service: Any = Beside()
    say: list[str] = []
    with pytest.raises(InputError, match="'no-such-program' cannot be started: No such file"):
        asyncio.run(_run_beside(service, ["no-such-program"], (), say.append))


def number_in(path: Path) -> int:
    """Of a process that writes it once it has started."""
    while not (path.exists() and path.read_text().endswith("\n")):
        time.sleep(0.01)
    return int(path.read_text())


def test_a_command_ends_with_the_service(tmp_path: Path) -> None:
    """Catches a program that goes on, without the service that it needs, after Ctrl-C."""

    async def stopped(started: Path) -> None:
        service: Any = Beside()
        say: list[str] = []
        task = asyncio.ensure_future(
            _run_beside(service, ["sh", "-c", f"echo $$ > {started}; exec sleep 600"], (), say.append)
        )
        process = await asyncio.to_thread(number_in, started)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

    asyncio.run(stopped(tmp_path / "started"))


def test_beside_a_command_any_port_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two scripts at a time that fight for port 8000."""
    seen: list[tuple[int, list[str]]] = []

    async def take(_host: str, port: int, *rest: Any) -> int:
        seen.append((port, rest[-2]))
        return 0

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", take)
    typer.main.get_command(app)(
        ["serve", "--state-dir", str(tmp_path), "--", "python", "train.py", "--port", "5"], standalone_mode=False
    )
    assert seen == [(0, ["python", "train.py", "--port", "5"])]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "python", "my script.py"], ["--started-as=--state-dir here -- python 'my script.py'"]),
        (["--api-key", "tml-own", "--", "python", "train.py"], []),
        ([], []),
    ],
)
def test_words_are_told_to_a_server_with_one_client(
    words: list[str], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a refusal without the line to type, and keys or folders of a line that other clients are told."""
    seen: list[Sequence[str]] = []

    async def take(*arguments: Any) -> int:
        seen.append(arguments[-1])
        return 0

    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", take)
    monkeypatch.setattr("cookhouse.cli.serve.command._check_port_is_free", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(typer.Exit):
        typer.main.get_command(app)(["serve", "--state-dir", "here", *words], standalone_mode=False)
    assert [word for word in seen[0] if word.startswith("--started-as")] == told


def exit_code(words: list[str]) -> object:
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code


def test_a_backup_is_made_and_nothing_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an option that is shown and starts a server all the same."""
    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", lambda *_: pytest.fail("it serves"))
    state, copy = tmp_path / "state", tmp_path / "copy"
    state.mkdir()
    Store(state / "server.db").close()
    words = ["serve", "--state-dir", str(state), "--backup", str(copy)]
    with socket.socket() as taken:  # that of the server which is backed up
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert exit_code([*words, "--port", str(taken.getsockname()[1])]) == 0
    assert (copy / "server.db").is_file()
    said = capsys.readouterr()
    assert said.out == f"backed up {state} to {copy}; to serve it: cookhouse serve --state-dir {copy}\n"
    assert said.err == ""
    assert exit_code(words) == 2
    assert "exists and is not an empty folder" in capsys.readouterr().err
    assert exit_code([*words, "--", "true"]) == 2
    assert "give one of the two" in capsys.readouterr().err
    words += ["--database", "postgresql://a@b/c"]
    assert exit_code(words) == 2
    assert f"stop the server, and copy both: the database with pg_dump, {state} with" in capsys.readouterr().err
    assert exit_code([*words, "--shared-folder", "/mnt/shared", "--checkpoints", "s3://kitchen/here"]) == 2
    said_of_shared = capsys.readouterr().err.replace("\n", " ")
    assert "stop all of the servers, each of which writes to both" in said_of_shared
    assert "with pg_dump, /mnt/shared with rsync -a; the bucket at s3://kitchen/here has" in said_of_shared


def test_a_command_does_not_go_with_other_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a server that ends sessions which others share, or a refusal of an option that nobody gave."""
    monkeypatch.setattr("cookhouse.cli.serve.command._run_in_foreground", lambda *_: pytest.fail("it serves"))
    given = ["--shared-folder", str(tmp_path), "--server-url", "http://here:8000"]
    given += ["--database", "postgresql://a@b/c", "--api-key", "tml-a"]
    assert exit_code(["serve", "--state-dir", str(tmp_path / "state"), *given, "--", "true"]) == 2
    refused = capsys.readouterr().err
    assert "--shared-folder is for several servers" in refused
    assert "--end-sessions" not in refused


def test_a_backup_says_what_was_lost_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, weights = tmp_path / "state", tmp_path / "weights"
    weights.mkdir()
    lora = LoraSpec(rank=3)
    row = add_checkpoint(state, weights, name="a", base_model="b", lora=lora, api_key="tml-a", source="/from")
    (state / "checkpoints" / row.checkpoint_id).rmdir()
    assert exit_code(["serve", "--state-dir", str(state), "--backup", str(tmp_path / "copy")]) == 0
    assert f"so that the backup lacks it, too: checkpoints/{row.checkpoint_id}" in capsys.readouterr().err


def test_a_backup_says_which_checkpoints_lie_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch a backup that is taken for whole, or says that what lies in an object store is lost."""
    state, url = tmp_path / "state", f"file://{tmp_path / 'bucket'}"
    row = saved_elsewhere(state, url)
    words = ["serve", "--state-dir", str(state), "--backup"]
    assert exit_code([*words, str(tmp_path / "copy"), "--checkpoints", url]) == 0
    said = capsys.readouterr()
    assert f"1 checkpoints lie at {url} and are not in the backup" in said.err
    assert "has lost" not in said.err
    assert said.out.endswith(f"cookhouse serve --state-dir {tmp_path / 'copy'} --checkpoints {url}\n")
    assert exit_code([*words, str(tmp_path / "other")]) == 0
    said = capsys.readouterr()
    assert f"checkpoints/{row.checkpoint_id}; if its server has --checkpoints URL, give the same" in said.err


def test_offline_it_is_said_that_files_lie_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would catch damage that is none, and files that are said to be deleted and are not."""
    state = tmp_path / "state"
    path = saved_elsewhere(state, f"file://{tmp_path / 'bucket'}").path
    words = ["--state-dir", str(state)]
    assert exit_code(["checkpoints", "export", path, str(tmp_path / "out"), *words]) == 2
    told = capsys.readouterr().err
    assert f"are not in {state / 'checkpoints'}: they lie where its server has its --checkpoints, or are lost" in told
    assert exit_code(["checkpoints", "delete", path, "--yes", *words]) == 0
    assert f"had no files in {state}; those in the object store of a server" in capsys.readouterr().err


def saved_elsewhere(state: Path, url: str) -> CheckpointRow:
    """A checkpoint of a state folder whose files lie at a URL."""
    state.mkdir()
    with contextlib.closing(Store(state / "server.db")) as store:
        remote = RemoteCheckpoints(url, state / "checkpoints-cache", store)
        return Checkpoints(state / "checkpoints", store, remote=remote).write(NEW, fill)
