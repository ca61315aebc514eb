"""Teachers of a run: named as weights are, checked against the student before anything is opened, and then opened."""

import asyncio
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tinker

from cookhouse import algorithms as alg
from cookhouse.assets import resolve_model
from cookhouse.data import build_renderer, parse_weights
from cookhouse.envs import environment_tag
from cookhouse.errors import InputError, ServiceError
from cookhouse.models.names import plain_name
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.naming import names_in
from cookhouse.registry import ModelRegistry
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import OffPolicyDistillationSettings, OnPolicyDistillationSettings
from cookhouse.training import Connect, ServiceClient, close_service, connect_to, service_errors
from cookhouse.weights.names import Origin, find_weights

KEY_VARIABLE = "TEACHER_API_KEY"

DistillationSettings: TypeAlias = OffPolicyDistillationSettings | OnPolicyDistillationSettings


@dataclass(frozen=True, kw_only=True)
class NamedTeacher:
    """A teacher of the settings, before it is opened."""

    name: str
    coef: float = 1.0
    """How much its divergence counts relative to that of the others."""
    tag: str | None = None
    """Of the groups that it teaches; None: of all."""


@dataclass(frozen=True, kw_only=True)
class Teacher(NamedTeacher):
    """Fixed weights that say how likely they find a text."""

    client: SamplingClient


Teachers: TypeAlias = Mapping[str | None, Teacher]
"""By their tag, the first of a group's, which names its environment where there are several."""


def teacher_of(tags: Sequence[str], teachers: Teachers) -> Teacher:
    """The teacher of a group with these tags. Raises `InputError` if it has none."""
    name = dataset_of(tags)
    teacher = teachers.get(name, teachers.get(None))
    if teacher is None:
        raise InputError(f"no teacher for groups of {name}; there is one for {', '.join(map(str, teachers))}")
    return teacher


def dataset_of(tags: Sequence[str]) -> str:
    """The environment or data set that a group is of, as metrics call it."""
    return tags[0] if tags else "all"


def named_teachers(config: OnPolicyDistillationSettings, environments: Sequence[str]) -> list[NamedTeacher]:
    """The teachers of the settings: one, or as many as there are environments.

    Raises:
        InputError: there is none, or another number of them; or environments that groups cannot be told apart by.
    """
    names = names_in(config.teacher_model or "")
    if not names:
        raise InputError("teacher_model names no teacher; give a base model, a run, or a tinker:// path")
    coefs = parse_weights(config.teacher_coefs, names, "teacher_coefs") or [1.0] * len(names)
    if len(names) == 1:
        return [NamedTeacher(name=names[0], coef=coefs[0])]
    if len(names) != len(environments):
        raise InputError(
            f"teacher_model names {len(names)} teachers, and env {len(environments)} environments; give one for each, "
            "or one for all"
        )
    tags = [environment_tag(each) for each in environments]
    if len(set(tags)) < len(tags):
        raise InputError(f"two of the environments are both called {', '.join(tags)}; call them differently")
    return [NamedTeacher(name=name, coef=coef, tag=tag) for name, coef, tag in zip(names, coefs, tags, strict=True)]


async def check_places(context: alg.RunContext, config: DistillationSettings, names: Iterable[str]) -> None:
    """See that teachers of these names are there, and go with the student; no service is asked. Raises `InputError`."""
    connect_to_teacher(context.adapters.teacher, config.teacher_base_url)
    for name in names:
        await asyncio.to_thread(_check_place, context, config, name)


def _check_place(context: alg.RunContext, config: DistillationSettings, name: str) -> None:
    check_teacher(name, find_weights(name, context.adapters.registry).origin(context.run_folders), config)


def check_teacher(name: str, origin: Origin, config: DistillationSettings) -> None:
    """See that a teacher reads the tokens that the student writes.

    Raises:
        InputError: it has another vocabulary, or another chat format.
    """
    if origin.base_model is None:
        return
    check_vocabulary(name, origin.base_model, config.model_name)
    own_format = config.teacher_renderer if isinstance(config, OffPolicyDistillationSettings) else None
    trained, asked = origin.renderer_name, own_format or config.renderer_name
    if trained not in (None, asked) and not config.force_renderer:
        raise InputError(
            f"the teacher {name} was trained in the chat format {trained}, and the student writes {asked}; set "
            f"renderer_name={trained}, or force_renderer=true to have it read what it has not seen"
        )
    try:
        build_renderer(origin.base_model, asked, force=config.force_renderer)
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

    def __init__(
        self, own: ServiceClient, other: Connect | None, registry: ModelRegistry | None, config: DistillationSettings
    ) -> None:
        self._own = own
        self._other = other
        self._registry = registry
        self._config = config
        self._opened: ServiceClient | None = None

    async def open(self, name: str) -> SamplingClient:
        """A client of a teacher that was checked, or that its service now says the base model of.

        Raises:
            InputError: a service refused the teacher, or it does not go with the student.
            ServiceError: it failed.
        """
        service = await self._service()
        # The SDK opens another service's session inside the first call and blocks meanwhile: not on the event loop.
        client = await alg.sampler_at(
            service, alg.sampler_place(name, self._registry), in_thread=self._other is not None
        )
        # The SDK's client knows its base model; others need not.
        base_model = getattr(client, "get_base_model", lambda: None)()
        if base_model is not None:
            student = self._config.model_name  # a service may call it by the folder that it is in
            base_model = student if base_model == resolve_model(student) else base_model
            check_teacher(name, Origin(base_model=base_model), self._config)
        return client

    async def _service(self) -> ServiceClient:
        if self._other is None:
            return self._own
        if self._opened is None:
            with service_errors("opening a session with the teacher's service"):
                self._opened = await self._other()
        return self._opened

    async def aclose(self) -> None:
        """End the session with another service; the run's own is left as it is."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await close_service(opened, "success")


def teacher_service(context: alg.RunContext, config: DistillationSettings, opened: alg.OpenedRun) -> TeacherService:
    """The service of a run's teachers, closed at its end at the latest."""
    adapters = context.adapters
    other = connect_to_teacher(adapters.teacher, config.teacher_base_url)
    service = TeacherService(opened.session.service, other, adapters.registry, config)
    context.closing.push_async_callback(service.aclose)
    return service


@alg.stage(doing="closing the teacher")
async def cleanup_teacher(teacher_service: TeacherService) -> None:
    """End the session with another service that teachers were asked at."""
    await teacher_service.aclose()


async def check_logprobs(name: str, client: SamplingClient, prompt: tinker.ModelInput) -> None:
    """Ask for logprobs of a short text.

    Raises:
        ServiceError: there are none.
    """
    with service_errors(f"asking the teacher {name}"):
        found = await client.compute_logprobs(prompt)
    if len(found) != prompt.length or not all(value is not None and math.isfinite(value) for value in found[1:]):
        raise no_logprobs(name)


def no_logprobs(name: str) -> ServiceError:
    """For a teacher that answers without what it is asked for."""
    return ServiceError(
        f"the teacher {name} gave no logprob for some token; take one whose service gives logprobs of a prompt"
    )


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
