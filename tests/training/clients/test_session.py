import asyncio
from typing import Any

import httpx
import pytest
import tinker

from cookhouse.errors import InputError, ServiceError
from cookhouse.settings import TrainingSettings
from cookhouse.training import FakeService, ServiceClient, SessionSpec, connect_to, open_session, service_errors

pytestmark = pytest.mark.anyio

SETTINGS = TrainingSettings()
LOADING = TrainingSettings(load_checkpoint_path="tinker://a")
FRESH = SessionSpec(settings=SETTINGS)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (FRESH, "create_model"),
        (SessionSpec(settings=LOADING), "load_weights"),
        (SessionSpec(settings=SETTINGS, resume_path="tinker://b"), "load_state"),
        (SessionSpec(settings=LOADING, resume_path="tinker://b"), "load_state"),
    ],
)
async def test_client_is_made_in_the_way_the_spec_says(spec: SessionSpec, kind: str) -> None:
    states: dict[str, Any] = {}
    saver: Any = await FakeService(states=states).create_lora_training_client("fake", seed=0)
    states["tinker://a"] = states["tinker://b"] = states[(await saver.save_state("x")).path]
    service = FakeService(states=states)
    await (await open_session(service.connect, spec)).close("success")
    assert [call.kind for call in service.calls if call.phase == "submit"] == [kind, "close"]
    assert service.closed_with == "success"


@pytest.mark.parametrize(
    "changes",
    [{}, {"load_checkpoint_path": "tinker://a"}, {"resume_path": "tinker://a"}],
    ids=["new", "load", "resume"],
)
async def test_a_run_says_by_which_renderer_it_is_trained(changes: dict[str, str]) -> None:
    """Would catch weights that a server later asks in another chat format, and a word of the user's that is lost."""
    told: list[object] = []

    class Service(FakeService):
        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if not name.startswith("create_") or "training_client" not in name:
                return found

            def call(*arguments: Any, **settings: Any) -> Any:
                told.append(settings["user_metadata"])
                return found(*arguments, **settings)

            return call

    states: dict[str, Any] = {}
    saver: Any = await FakeService(states=states).create_lora_training_client("fake", seed=0)
    states["tinker://a"] = states[(await saver.save_state("x")).path]
    resume_path = changes.get("resume_path")
    metadata = {"team": "a"}
    settings = TrainingSettings(
        renderer_name="role_colon",
        user_metadata=metadata,
        load_checkpoint_path=changes.get("load_checkpoint_path"),
    )
    spec = SessionSpec(settings=settings, resume_path=resume_path)
    await (await open_session(Service(states=states).connect, spec)).close("success")
    assert told == [{"team": "a", "renderer_name": "role_colon"}]


async def test_session_whose_client_fails_is_closed() -> None:
    async def gate(kind: str, _: int) -> None:
        if kind == "create_model":
            raise tinker.RequestFailedError("unknown model", "r", tinker.types.RequestErrorCategory.User)

    service = FakeService(gate=gate)
    with pytest.raises(InputError, match="unknown model"):
        await open_session(service.connect, FRESH)
    assert service.closed_with == "errored"


async def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a Ctrl-C that hangs because the server is gone: the SDK would retry for minutes.
    monkeypatch.setattr("cookhouse.training.clients.session._CLOSE_PATIENCE_SECONDS", 0.01)

    async def gate(kind: str, _: int) -> None:
        if kind == "close":
            await asyncio.Event().wait()

    session = await open_session(FakeService(gate=gate).connect, FRESH)
    await session.close("interrupted")


def _status_error(kind: type[tinker.APIStatusError], status: int, body: object) -> tinker.APIStatusError:
    response = httpx.Response(status, request=httpx.Request("POST", "http://host:1/api"))
    return kind(f"Error code: {status}", response=response, body=body)


def _failed(message: str, category: str) -> tinker.RequestFailedError:
    wrapped = f"Request failed: {message} for self.request_id='r' and expected type self.model_cls=<class 'x'>"
    return tinker.RequestFailedError(wrapped, "r", tinker.types.RequestErrorCategory[category])


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (
            _status_error(tinker.BadRequestError, 400, {"detail": "no model x"}),
            InputError,
            r"no model x \(while trying\)",
        ),
        (_status_error(tinker.AuthenticationError, 401, {"detail": "bad key"}), InputError, "TINKER_API_KEY"),
        (_failed("token 9999", "User"), InputError, r"^token 9999 \(while trying\)$"),
        (_failed("gpu is gone", "Server"), ServiceError, r"^gpu is gone \(while trying\)$"),
        (_failed("x: No space left on device (os error 28)", "Server"), InputError, "No space left on device"),
        # With an InputError the run would not say how to go on.
        (_failed("session 5 has ended: its client was not heard of", "User"), ServiceError, "has ended: its client"),
        (
            _status_error(tinker.NotFoundError, 404, {"detail": "model 'a' is not loaded: its session has ended"}),
            ServiceError,
            "its session has ended",
        ),
        (_status_error(tinker.InternalServerError, 500, None), ServiceError, "Error code: 500"),
        (
            tinker.APIConnectionError(request=httpx.Request("GET", "http://host:1/")),
            ServiceError,
            "host cannot be reached",
        ),
    ],
)
def test_sdk_errors_are_attributed(raised: Exception, expected: type[Exception], message: str) -> None:
    with pytest.raises(expected, match=message) as caught, service_errors("trying"):
        raise raised
    assert caught.value.__cause__ is raised


def test_a_result_that_is_gone_is_the_services_doing() -> None:
    """Would catch a traceback at the end of a run that was suspended until its session was gone: the SDK wraps this."""
    gone = _status_error(tinker.NotFoundError, 404, {"detail": "unknown request 'train-1'"})
    with pytest.raises(ServiceError, match=r"^unknown request 'train-1' \(while trying\)$"), service_errors("trying"):
        raise ValueError("Error retrieving result") from gone
    with pytest.raises(ValueError, match="of another kind"), service_errors("trying"):
        raise ValueError("of another kind")


async def test_sdk_client_fits_the_protocol() -> None:
    service: ServiceClient = await connect_to("http://127.0.0.1:9", "tml-none")()
    assert isinstance(service, tinker.ServiceClient)
