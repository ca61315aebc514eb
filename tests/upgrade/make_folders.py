"""The folders of `data`, written by a checkout of the version that they are of, which has a folder of its own there:

    .venv/bin/python -m tests.upgrade.make_folders ../older [NAME ...]

`../older` is a checkout with a `.venv` of its own; without names all of `FOLDERS` are made. Each archive has beside the
folder what its client knew, as `known.json`. Nothing in them may hang on this machine: neither a path nor a number that
another processor would compute in other bits is compared.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kills.server import KEYS, free_port
from tests.server.conftest import Cluster
from tests.server.hosting import KEY, OTHER_KEY
from tests.server.storage.store.test_schema import connected
from tests.upgrade.client import Client
from tests.waiting import wait_until

DATA = Path(__file__).parent / "data"
_FAKE = "tests/kills/fake_server.py"
_SHARED = "tests/server/leases/serve_shared.py"
_REAL = "src/cookhouse/server/__main__.py"
_PATCHED = """
import runpy, sys, time
from cookhouse.server.settings import Settings
from tests.server.fake_engine import FakeEngine

def never(*_):
    time.sleep(3600)

script, mode, *words = sys.argv[1:]
sys.argv = [script, *words]
if mode == "busy":
    FakeEngine.forward_backward = never
often = {"state_seconds": 1e9 if mode == "busy" else 0.0, "state_cost": 1e9}
init = Settings.__init__
Settings.__init__ = lambda self, **given: init(self, **given | often)
runpy.run_path(script, run_name="__main__")
"""
"""Runs a script that serves: one that saves a state whenever there is something to save, or `busy`, which saves none
and whose fake engine never finishes a pass.
"""


class Checkout:
    """Starts the programs of an older version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        words = ["git", "-C", str(self.folder), "rev-parse", "--short=8", "HEAD"]
        self.version = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    @contextmanager
    def program(self, *words: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
        """`words` behind `python`, in a folder; it is killed at the end of the block, its children with it."""
        own = {
            name: text for name, text in os.environ.items() if not name.startswith(("COOKHOUSE", "TINKER", "PYTHON"))
        }
        running = subprocess.Popen(
            [self.folder / ".venv/bin/python", *words],
            cwd=folder,
            env=own | {"COOKHOUSE_API_KEYS": ",".join((KEY, OTHER_KEY, *KEYS)), "PYTHONPATH": str(self.folder)},
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()

    @contextmanager
    def server(
        self, script: str, *words: str, port: int, state_dir: Path, is_busy: bool = False
    ) -> Iterator["subprocess.Popen[str]"]:
        """As `program`, of a script of the checkout's, once it answers."""
        mode = "busy" if is_busy else "saving"
        places = () if words else ("--port", str(port), "--state-dir", str(state_dir))
        with (
            self.program(
                "-c", _PATCHED, str(self.folder / script), mode, *words, *places, folder=state_dir.parent
            ) as running,
            Client(f"http://127.0.0.1:{port}", KEY) as client,
        ):
            wait_until(lambda: running.poll() is not None or _is_up(client))
            assert running.poll() is None, running.returncode
            yield running


def _is_up(client: Client) -> bool:
    try:
        return client.http.get("/healthz").status_code == 200
    except OSError:
        return False
    except Exception as error:  # httpx's own
        return not type(error).__module__.startswith("http")


def train(client: Client, session_id: str, place: Path | str) -> dict[str, Any]:
    """A model with two steps, whose answers nobody fetches, and checkpoints of all kinds: what its
    client knows. `place` is the server's database.
    """
    model_id = client.model(session_id)
    for seq_id, tokens_T in ((1, [1, 2, 3, 4]), (3, [4, 2, 6, 8])):
        client.answer(client.send_pass(model_id, seq_id, tokens_T))
        time.sleep(1)  # while a state is written, none is begun, and a pass may have begun one
        unfetched = client.send_step(model_id, seq_id + 1)
        wait_until(lambda: _is_covered(place))
    saved = [
        client.send_save(model_id, 5, "before"),
        client.send_save(model_id, 6, "published", kind="save_weights_for_sampler"),
        client.send_save(model_id, 7, "expiring", ttl_seconds=3600),
    ]
    answers = [client.answer(request_id) for request_id in saved]
    return {
        "session_id": session_id,
        "model_id": model_id,
        "paths": [json.loads(answer)["path"] for answer in answers],
        "unfetched": unfetched,
    }


def ended(client: Client) -> str:
    """A session that has ended, of which a checkpoint is left: the path of this."""
    session_id = client.session()
    model_id = client.model(session_id)
    path = json.loads(client.answer(client.send_save(model_id, 1, "left")))["path"]
    client.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    return str(path)


def describe(client: Client, known: Mapping[str, Any]) -> dict[str, Any]:
    """What a server lists and tells of what a client knows, without what hangs on the time."""
    before, published = known["paths"][:2]
    usage = client.get(f"/sessions/{known['session_id']}/usage")
    usage.pop("engine_seconds")
    return {
        "session": client.get(f"/sessions/{known['session_id']}"),
        "sessions": sorted(client.get("/sessions")["sessions"]),
        "runs": sorted(run["training_run_id"] for run in client.get("/training_runs")["training_runs"]),
        "checkpoints": sorted(
            (kept["tinker_path"], kept["public"], kept["size_bytes"])
            for kept in client.get("/checkpoints")["checkpoints"]
        ),
        "weights": [
            {name: text for name, text in client.post("/weights_info", tinker_path=path).items() if name != "sha256"}
            for path in (before, published)
        ],
        "usage": usage,
    }


def make_served(checkout: Checkout, folder: Path) -> dict[str, Any]:
    """A server that ended in order: two tenants, live and ended sessions, checkpoints of all kinds, usage."""
    state_dir, port = folder / "state", free_port()
    database = state_dir / "server.db"
    url = f"http://127.0.0.1:{port}"
    with (
        checkout.server(_FAKE, port=port, state_dir=state_dir) as running,
        Client(url, KEY) as mine,
        Client(url, OTHER_KEY) as others,
    ):
        known = train(mine, mine.session(display_name="first"), database)
        known["left"] = ended(mine)
        known["theirs"] = train(others, others.session(), database)
        model_id = known["model_id"]
        mine.http.post(f"/training_runs/{model_id}/checkpoints/sampler_weights/published/publish").raise_for_status()
        sampler = {"session_id": known["session_id"], "sampling_session_seq_id": 0, "model_path": known["paths"][1]}
        known["sampler_id"] = mine.post("/create_sampling_session", **sampler)["sampling_session_id"]
        mine.answer(mine.send_sample(known["sampler_id"], 1))
        known["described"] = describe(mine, known)
        known["expires_at"] = _value(database, "SELECT min(expires_at) FROM checkpoints")
        _end(running)
    return known


def make_killed(checkout: Checkout, folder: Path) -> dict[str, Any]:
    """The same, whose next server was killed with requests that it had accepted and not run."""
    known = make_served(checkout, folder)
    state_dir, port = folder / "state", free_port()
    with checkout.server(_FAKE, port=port, state_dir=state_dir, is_busy=True):
        _leave_pending(known, port)
    return known


def make_engine(checkout: Checkout, folder: Path) -> dict[str, Any]:
    """A killed server over the real engine, of which a pass is at work or done and the rest is not."""
    state_dir, port = folder / "state", free_port()
    with checkout.server(_REAL, port=port, state_dir=state_dir) as running:
        with Client(f"http://127.0.0.1:{port}", KEYS[0]) as client:
            known = train(client, client.session(), state_dir / "server.db")
        _end(running)
    with checkout.server(_REAL, port=port, state_dir=state_dir, is_busy=True):
        _leave_pending(known, port, KEYS[0])
    return known


def make_shared(checkout: Checkout, folder: Path) -> dict[str, Any]:
    """Two servers after each other over one database of PostgreSQL's, of which the second was killed at work."""
    with closing(Cluster()) as cluster:
        database = cluster.new(is_empty=True)
        (folder / "shared").mkdir()
        with _sharing(checkout, folder, database, is_busy=False) as (running, port):
            with Client(f"http://127.0.0.1:{port}", KEY) as client:
                known = train(client, client.session(), database)
            _end(running)
        with _sharing(checkout, folder, database, is_busy=True) as (_, port):
            _leave_pending(known, port)
        with connected(database) as connection:  # as if long ago, whatever a later clock says
            connection.exec_driver_sql("UPDATE servers SET heard_at = 0")
        (folder / "dump.sql").write_text(_dumped(cluster, database))
    return known


@contextmanager
def _sharing(
    checkout: Checkout, folder: Path, database: str, *, is_busy: bool
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """One more server over a database, with its port; its own files lie outside the folder."""
    with tempfile.TemporaryDirectory() as temporary:
        state_dir, port = Path(temporary) / "state", free_port()
        words = str(state_dir), str(folder / "shared"), database, str(port)
        with checkout.server(_SHARED, *words, port=port, state_dir=state_dir, is_busy=is_busy) as running:
            yield running, port


def _end(running: "subprocess.Popen[str]") -> None:
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0


def _is_covered(place: Path | str) -> bool:
    """Whether the newest states have all that models have learned."""
    return not _value(place, "SELECT count(*) FROM entries WHERE kind IN ('forward_backward', 'optim_step')")


def _value(place: Path | str, query: str) -> Any:
    with connected(place) as connection:
        return connection.exec_driver_sql(query).scalar_one()


def _leave_pending(known: dict[str, Any], port: int, key: str = KEY) -> None:
    with Client(f"http://127.0.0.1:{port}", key) as client:
        known["pending"] = client.send_pending(known["model_id"], 8, "after")


def _dumped(cluster: Cluster, database: str) -> str:
    """Statements that make a database again, which any version of PostgreSQL takes."""
    url = database.replace("postgresql+psycopg", "postgresql")
    dumped = subprocess.run(
        [cluster.server.bin_path / "pg_dump", "--column-inserts", "--no-owner", "--no-privileges", url],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = dumped.splitlines()
    return "".join(
        f"{line}\n" for line in lines if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog"))
    )


RUN: Mapping[str, Any] = {
    "dataset_path": "train.jsonl",
    "test_path": "test.jsonl",
    "lora_rank": 1,
    "train_attn": False,
    "train_mlp": False,
    "batch_size": 2,
    "max_steps": 6,
    "save_every": 2,
    "num_eval": 1,
    "num_samples": 0,
    "log_path": "run",
}
"""Settings of the run, in the folder that it is made in."""


def make_run(checkout: Checkout, folder: Path) -> dict[str, Any]:
    """A supervised run with a service of its own, which was killed with it behind its first checkpoint."""
    for name, count in (("train", 14), ("test", 2)):
        rows = [{"prompt": f"say {number}", "completion": f"{number} is said"} for number in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in RUN.items()]
    with checkout.program("-m", "cookhouse", "run", "supervised", *settings, folder=folder) as running:
        wait_until(lambda: running.poll() is not None or _num_steps(folder / "run") >= 3)
        assert running.poll() is None
        os.killpg(running.pid, signal.SIGSTOP)
    return {}


def _num_steps(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count('"train/loss"') if file.exists() else 0


FOLDERS: Mapping[str, Callable[[Checkout, Path], dict[str, Any]]] = {
    "served": make_served,
    "killed": make_killed,
    "engine": make_engine,
    "shared": make_shared,
    "run": make_run,
}


def main() -> None:
    checkout, names = Checkout(Path(sys.argv[1])), sys.argv[2:] or [*FOLDERS]
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / name
            folder.mkdir()
            started_at = time.monotonic()
            known = FOLDERS[name](checkout, folder)
            (folder / "known.json").write_text(json.dumps(known))
            file = DATA / checkout.version / f"{name}.tar.xz"
            file.parent.mkdir(exist_ok=True)
            with tarfile.open(file, "w:xz") as archive:
                archive.add(folder, ".", filter=_nobodys)
        sys.stdout.write(
            f"{file.relative_to(DATA)}: {file.stat().st_size} bytes, {time.monotonic() - started_at:.0f} s\n"
        )


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
