"""Catches a route that lists only what the server that is asked holds, or has counted.

Two servers share a database and a folder; the same is made through each. Every GET route of the application is asked at
both, so that a new one is, too. Both have to answer the same, and a list has to have what was made through either. POST
routes that list are in `LISTS`, and all others in `POSTS_OF_ONE`: one that is in neither fails.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from tests.server import hosting
from tests.server.leases.conftest import Shared, knows_another
from tests.server.leases.test_routing import save
from tests.server.test_routes import HeldSamples, Server
from tests.waiting import wait_until

from cookhouse.server.http.app import create_app
from cookhouse.server.http.routes.endpoint import PREFIXES
from cookhouse.server.http.routes.not_offered import _NOT_OFFERED

V1 = "/api/v1"
Two = tuple[Server, Server]
Made = tuple[Mapping[str, str], Mapping[str, str]]
"""Names of what was made through each of the two."""
Body = Callable[[Mapping[str, str]], dict[str, Any]]
"""What to post, made of names of what was made."""

LISTS: Mapping[str, Body] = {
    f"{V1}/checkpoints/search": lambda _: {"limit": 50},
    f"{V1}/sessions/search": lambda _: {"statuses": [{"type": "active"}], "limit": 50},
    f"{V1}/retrieve_futures": lambda made: {"target": {"sampling_session_id": made["sampler_id"]}},
}
"""Routes that answer a POST with a list."""

POSTS_OF_ONE: Mapping[str, Any] = {
    "the id of one request, or its result": (
        *(
            f"{V1}/{kind}"
            for kind in (
                "create_model",
                "load_weights",
                "forward",
                "forward_backward",
                "optim_step",
                "save_weights",
                "save_weights_for_sampler",
                "save_weights_external",
                "asample",
                "retrieve_future",
                "cancel_future",
            )
        ),
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
    ),
    "what was named, made or changed, alone": (
        f"{V1}/get_info",
        f"{V1}/weights_info",
        f"{V1}/copy_weights",
        f"{V1}/external_weights_upload_finish",
        f"{V1}/external_weights_upload_start",
        f"{V1}/training_runs/{{model_id}}/checkpoints/{{kind}}/{{name}}/publish",
        f"{V1}/create_sampling_session",
        f"{V1}/create_session",
        f"{V1}/session_heartbeat",
        f"{V1}/sessions/{{session_id}}/finish",
    ),
    "settings, or nothing": (f"{V1}/client/config", f"{V1}/client/dynamic_config", f"{V1}/telemetry"),
    "a worker of the server that is asked: others have workers of the same names": (
        f"{V1}/workers",
        f"{V1}/workers/{{name}}/drain",
    ),
    "a refusal": tuple(f"{V1}{path}" for path in _NOT_OFFERED),
}
"""Those that answer a POST with something else, by what."""

NOT_ASKED: Mapping[str, str] = {
    "/v1/responses/{response_id}": "what one server's memory has",
    "/health": "one server's state",
    "/version": "one server's release",
    "/metrics": "figures of one process, which Prometheus adds up; what tenants have used is the same from each",
    "/readyz": "one server's state",
    f"{V1}/checkpoint_archives/{{checkpoint_id}}/{{expires_at}}/{{signature}}": "a file, by a link",
    f"{V1}/external_weights/{{checkpoint_id}}/{{expires_at}}/{{signature}}/{{name}}": "a file, by a link",
    f"{V1}/session_traces/{{session_id}}/{{expires_at}}/{{signature}}": "a file, by a link",
    f"{V1}/own/status": "one server's part of /status",
    f"{V1}/own/usage": "one server's part of /usage",
    **{f"{V1}{path}": "a refusal" for path in _NOT_OFFERED},
}
"""GET routes that list nothing that clients make, and why."""

OF_ONE_SERVER: Mapping[str, Mapping[str, str]] = {
    "/healthz": {"server_id": "which of them it is"},
    "/v1/models": {
        "created": "of a base model, since when it offers that; of weights, the time at /checkpoints",
        "created_at": "the same",
    },
    "/v1/models/{name:path}": {"created": "the same", "created_at": "the same"},
    f"{V1}/status": {
        "server": "its process and settings",
        "workers": "its workers, which an operator drains by name at this server",
        "waiting": "what waits for its workers",
        "requests": "how long its routes take",
        "journal": "its writes that wait",
        "disk": "its machine's",
    },
}
"""Fields that are the asked server's own, and why."""

MAY_BE_EMPTY: Mapping[str, str] = {f"{V1}/status .troubles": "nothing is wrong"}
"""Lists that are empty here, and why."""

OF_THE_MOMENT = re.compile(r"_seconds$|^seconds_ago$|_per_second$|^engine_share$|^expires$|^is_this$")
"""Fields that differ from one answer of a server to the next."""


def routes_of(routes: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Method and path of each, also of routers that are included, and applications that are mounted."""
    for route in routes:
        if isinstance(route, Mount) and route.path in PREFIXES[1:]:
            continue  # the routes under /v1 once more
        if isinstance(route, Mount):
            yield from routes_of(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            yield from ((method, prefix + route.path) for method in sorted({"GET", "POST"} & (route.methods or set())))
        else:  # some versions of FastAPI keep an included router whole
            yield from routes_of(route.original_router.routes, prefix + route.include_context.prefix)


def make(server: Server, engine: HeldSamples, num_more: int = 0) -> Mapping[str, str]:
    """One of each thing that a client can make; their names, as in the paths of routes. `num_more`: of sessions with a
    model, so that counts differ as well.
    """
    for _ in range(num_more):
        server.result(server.forward_backward(server.model(server.session()), 1).json()["request_id"])
    session_id = server.session()
    model_id = server.model(session_id)
    assert server.result(server.forward_backward(model_id, 1).json()["request_id"]).status_code == 200
    server.grad_norm(model_id, 2)
    save(server, model_id, 3)
    save(server, model_id, 4, "save_weights_for_sampler")
    _, kind, name = save(server, model_id, 5, "save_weights_external").removeprefix("tinker://").split("/")
    sampler_id = server.post(
        "/create_sampling_session", session_id=session_id, sampling_session_seq_id=0, base_model="cookhouse/tiny"
    )["sampling_session_id"]
    sample = {
        "sampling_session_id": sampler_id,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
        "sampling_params": {"max_tokens": 1},
    }
    server.result(server.post("/asample", seq_id=1, **sample)["request_id"])
    engine.free.clear()
    server.post("/asample", seq_id=2, **sample)
    return {"session_id": session_id, "model_id": model_id, "kind": kind, "name": name, "sampler_id": sampler_id}


def path_of(route: str, made: Mapping[str, str]) -> str:
    if route == "/v1/models/{name:path}":
        return f"/v1/models/tinker://{made['model_id']}/weights/at-3"
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: made[found[1]], route)


def ask(server: Server, method: str, route: str, made: Mapping[str, str]) -> Any:
    """What a server answers, without what is its own or of the moment."""
    body = LISTS[route](made) if method == "POST" else None
    answer = server.http.request(method, server.host.url + path_of(route, made), json=body)
    if answer.is_error:
        return f"{answer.status_code} {answer.text}"
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return answer.text
    return plain(answer.json(), server.host.url, OF_ONE_SERVER.get(route, {}))


def plain(value: Any, url: str, own: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        left = {name: one for name, one in value.items() if name not in own and not OF_THE_MOMENT.search(name)}
        return {name: plain(one, url, own) for name, one in left.items()}
    if isinstance(value, list):  # rows that are alike may come in any order
        return sorted((plain(one, url, own) for one in value), key=str)
    return "a link" if isinstance(value, str) and value.startswith(f"{url}/") else value


def empty_lists(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list) and not value:
        yield path
    for name, one in value.items() if isinstance(value, dict) else ():
        yield from empty_lists(one, f"{path}.{name}")


def problem(servers: Two, made: Made, method: str, route: str) -> str | None:
    """What is wrong with a route, None if nothing is."""
    if method == "POST" and route not in LISTS:
        is_known = any(route in routes for routes in POSTS_OF_ONE.values())
        return None if is_known else "is new: name it in LISTS, or in POSTS_OF_ONE by what it answers"
    if method == "GET" and route in NOT_ASKED:
        return None
    if unknown := set(re.findall(r"\{(\w+)", route)) - made[0].keys():
        return f"is new: have `make` make a {', '.join(sorted(unknown))}, or name it in NOT_ASKED with the reason"
    is_of_one = "{" in route or (method == "POST" and made[0]["session_id"] in str(LISTS[route](made[0])))
    for names in made:
        answers = [ask(server, method, route, names) for server in servers]
        if answers[0] != answers[1]:
            return f"answers {answers[0]} at one server, and {answers[1]} at the other"
        if unfilled := set(empty_lists(answers[0], f"{route} ")) - MAY_BE_EMPTY.keys():
            return f"lists nothing as {', '.join(sorted(unfilled))}: have `make` make one"
        listed = [one["session_id"] in str(answers[0]) for one in made]
        if not is_of_one and any(listed) and not all(listed):
            return f"lists what was made through one server alone: {answers[0]}"
    return None


def broken_app(service: Any, **options: Any) -> FastAPI:
    """The application, and routes that this test is to refuse."""
    app = create_app(service, **options)

    async def held(_request: Request) -> JSONResponse:
        return JSONResponse([session.session_id for session in service.sessions])

    async def nothing(_request: Request) -> JSONResponse:
        return JSONResponse({"things": []})

    app.add_route("/held", held, methods=["GET"])
    app.add_route("/nothing", nothing, methods=["GET"])
    app.add_route("/unfilled/{thing_id}", nothing, methods=["GET"])
    app.add_route("/new", nothing, methods=["POST"])
    return app


BROKEN = {
    "GET /held": "at one server, and",
    "GET /nothing": "lists nothing as /nothing .things",
    "GET /unfilled/{thing_id}": "have `make` make a thing_id",
    "POST /new": "name it in LISTS",
}


def _same(engine: HeldSamples) -> HeldSamples:
    return engine


@pytest.fixture
def made_through_both(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Two, Made]]:
    """Two servers, and names of what was made through each."""
    monkeypatch.setattr(hosting, "create_app", broken_app)
    for name in ("_AGAIN_SECONDS", "_SERVERS_SECONDS", "_STORE_SECONDS"):
        monkeypatch.setattr(f"cookhouse.server.status.status.{name}", 0.0)
    for name in ("leases.forwarding._PART_TIMEOUT", "status.cached._PATIENCE_SECONDS"):
        monkeypatch.setattr(f"cookhouse.server.{name}", 30.0)
    monkeypatch.setattr("cookhouse.server.status.worker_watch._PATIENCE_SECONDS", 30.0)
    engines = HeldSamples(), HeldSamples()
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(shared.server(make_engine=partial(_same, one))) for one in engines)
        servers = first, second
        for engine in engines:
            stack.callback(engine.free.set)
            engine.free.set()
        wait_until(lambda: all(knows_another(server) for server in servers))
        made = make(first, engines[0]), make(second, engines[1], num_more=1)
        for server in servers:  # writes what is written now and then
            server.host.on_loop(server.host.service.sweeper.sweep)
        yield servers, made


def test_both_servers_list_what_was_made_through_either(made_through_both: tuple[Two, Made]) -> None:
    servers, made = made_through_both
    routes = dict.fromkeys(routes_of(create_app(servers[0].host.service).routes))
    found = {f"{method} {route}": problem(servers, made, method, route) for method, route in routes}
    assert {route: text for route, text in found.items() if text is not None} == {}
    assert {"GET /v1/models", "GET /page/", f"GET {V1}/training_runs", f"POST {V1}/asample"} < found.keys()
    named = {*LISTS, *NOT_ASKED, *OF_ONE_SERVER, *(route for routes in POSTS_OF_ONE.values() for route in routes)}
    assert named - {route for _, route in routes} == set(), "is gone: name it here no more"
    for route, text in BROKEN.items():
        method, path = route.split(" ")
        assert text in str(problem(servers, made, method, path)), "a test that cannot fail"
