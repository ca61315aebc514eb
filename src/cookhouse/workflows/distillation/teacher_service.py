"""Teachers of a run: named as weights are, checked against the student before anything is opened, and then opened."""

import math
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import tinker

from cookhouse.algorithms.base.second_model import sampler_at, sampler_place
from cookhouse.assets import resolve_model
from cookhouse.data import build_renderer
from cookhouse.errors import InputError
from cookhouse.models.names import plain_name
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.registry import ModelRegistry
from cookhouse.sampling_client import SamplingClient
from cookhouse.training import Connect, ServiceClient, connect_to, service_errors
from cookhouse.training.clients.session import close_service
from cookhouse.weights.names import Origin
from cookhouse.workflows.distillation.teachers import no_logprobs

KEY_VARIABLE = "TEACHER_API_KEY"


@dataclass(frozen=True, kw_only=True)
class Student:
    """The student that a teacher has to fit."""

    model_name: str
    renderer_name: str
    force_renderer: bool


def check_teacher(name: str, origin: Origin, student: Student) -> None:
    """See that a teacher reads the tokens that the student writes.

    Raises:
        InputError: it has another vocabulary, or another chat format.
    """
    if origin.base_model is None:
        return
    check_vocabulary(name, origin.base_model, student.model_name)
    trained, asked = origin.renderer_name, student.renderer_name
    if trained not in (None, asked) and not student.force_renderer:
        raise InputError(
            f"the teacher {name} was trained in the chat format {trained}, and the student writes {asked}; set "
            f"renderer_name={trained}, or force_renderer=true to have it read what it has not seen"
        )
    try:
        build_renderer(origin.base_model, asked, force=student.force_renderer)
    except InputError as error:
        raise InputError(f"the teacher {name} cannot read the student's chat format: {error}") from error


def check_vocabulary(name: str, teacher_model: str, student_model: str) -> None:
    """See that two models write text with the same tokens. Raises `InputError` if they do not."""
    if plain_name(teacher_model) == plain_name(student_model):
        return
    words, others = (get_tokenizer(model).get_vocab() for model in (student_model, teacher_model))
    if words == others:
        return
    word = min(word for word in {**words, **others} if words.get(word) != others.get(word))
    places = [str(found.get(word, "no token")) for found in (words, others)]
    raise InputError(
        f"the teacher {name} has another vocabulary than {student_model}: {len(others):,} tokens and not "
        f"{len(words):,}, and {word!r} is {places[1]} there and {places[0]} here; take a teacher of the same family"
    )


class TeacherService:
    """Service at which teachers are asked: the run's own, or another one, which it opens and closes."""

    def __init__(self, own: ServiceClient, other: Connect | None) -> None:
        self._own = own
        self._other = other
        self._opened: ServiceClient | None = None
        self._closing = AsyncExitStack()

    async def open(self, name: str, student: Student, registry: ModelRegistry | None) -> SamplingClient:
        """A client of a teacher that was checked, or that its service now says the base model of.

        Raises:
            InputError: a service refused the teacher, or it does not go with the student, or gives no logprobs.
            ServiceError: it failed.
        """
        service = await self._service()
        # The SDK opens another service's session inside the first call and blocks meanwhile: not on the event loop.
        client = await sampler_at(service, sampler_place(name, registry), in_thread=self._other is not None)
        # The SDK's client knows its base model; others need not.
        base_model = getattr(client, "get_base_model", lambda: None)()
        if base_model is not None:
            check_teacher(name, Origin(base_model=_offered(base_model, student)), student)
        return client

    async def _service(self) -> ServiceClient:
        if self._other is None:
            return self._own
        if self._opened is None:
            with service_errors("opening a session with the teacher's service"):
                self._opened = await self._other()
            self._closing.push_async_callback(partial(close_service, self._opened, "success"))
        return self._opened

    async def aclose(self) -> None:
        """End the session with another service; the run's own is left as it is."""
        self._opened = None
        await self._closing.aclose()


def _offered(base_model: str, student: Student) -> str:
    """A service may call the student's model by the folder that it is in."""
    return student.model_name if base_model == resolve_model(student.model_name) else base_model


async def check_logprobs(name: str, client: SamplingClient, prompt: tinker.ModelInput) -> None:
    """Ask for logprobs of a short text.

    Raises:
        ServiceError: there are none.
    """
    with service_errors(f"asking the teacher {name}"):
        found = await client.compute_logprobs(prompt)
    if len(found) != prompt.length or not all(value is not None and math.isfinite(value) for value in found[1:]):
        raise no_logprobs(name)


def connect_to_teacher(given: Connect | None, base_url: str | None) -> Connect | None:
    """Function that connects to another service than the run's own; None: teachers are at its own.

    Raises:
        InputError: nobody has given a key for it. That of the run's service is not shown to another.
    """
    if given is not None or base_url is None:
        return given
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise InputError(f"teacher_base_url={base_url} needs the key of that service; set it in {KEY_VARIABLE}")
    return connect_to(base_url, key)
