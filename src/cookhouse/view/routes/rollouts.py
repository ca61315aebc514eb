"""Page of a step's rollouts: all by reward and text, and groups side by side."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlencode

from starlette.requests import Request

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.pages import run_address
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.reading.rollout_filter import FoundRollout, RolloutFilter, find_rollouts
from cookhouse.runs.reading.rollout_texts import END_TOKENS
from cookhouse.runs.reading.rollouts import Rollout, RolloutIndex, rollout_steps
from cookhouse.runs.reading.skeleton import read_text
from cookhouse.view.pages import ask_address, page_and_json
from cookhouse.view.paging import Paging
from cookhouse.view.tokens.group import TOKENS_OF_ONE, GroupView, group_values
from cookhouse.view.tokens.query import one_of, real, whole, words
from cookhouse.view.tokens.shown import quantity_names
from cookhouse.view.tokens.step_name import StepName, parse_step
from cookhouse.view.tokens.table import SORTS, bars_of, lines_of, sorted_rollouts
from cookhouse.view.tokens.words import Words

_LINES = 50
_MAX_PROBLEMS = 5
_MAX_QUESTION = 5000

Address: TypeAlias = Callable[..., str]
"""Of the page with the same filter, and with more in its query."""


def _read(request: Request) -> dict[str, Any]:
    run = request.app.state.place.run(request.path_params["name"])
    step = parse_step(request.path_params["step"])
    index = request.app.state.rollouts.index(step.file(run.path))
    if not len(index.lines):
        raise _absent(run, step)
    wanted = RolloutFilter(
        min_reward=real(request, "min_reward", -math.inf),
        max_reward=real(request, "max_reward", math.inf),
        text=words(request, "text"),
    )
    known = request.app.state.wordings.of(run.record)
    texts = request.app.state.rollouts.texts(index, known) if wanted.text else None
    found = find_rollouts(index, wanted, texts)
    address = partial(_address, run.name, step, _query_of(wanted))
    values = {
        **_frame(run, step, index),
        "wanted": _query_of(wanted),
        "num_found": len(found),
        "gaps": [known.problem] if known.problem else [],
        "all_address": _address(run.name, step, {}),
        "list_address": address(),
    }
    number = whole(request, "group", None)
    if number is not None:
        return {**values, **_group(request, run, step, index, known, number, found, address)}
    if texts is not None and texts.num_cut:
        values["gaps"].append(
            f"of {texts.num_cut:,} long rollouts the search reads the first and the last {END_TOKENS:,} tokens"
        )
    return {**values, "group": None, **_table(request, index, found, wanted, known, address)}


def _frame(run: FoundRun, step: StepName, index: RolloutIndex) -> dict[str, Any]:
    previous, following = step.neighbors(run.path)
    problems = [group.problem for group in index.groups if group.problem]
    return {
        "name": run.name,
        "step": str(step),
        "is_test": step.is_test,
        "title": step.title,
        "previous": previous,
        "following": following,
        "num_groups": len(index.groups),
        "num_rollouts": index.num_rollouts,
        "problems": problems[:_MAX_PROBLEMS],
        "num_more_problems": max(0, len(problems) - _MAX_PROBLEMS),
    }


def _table(
    request: Request,
    index: RolloutIndex,
    found: Sequence[FoundRollout],
    wanted: RolloutFilter,
    known: Words,
    address: Address,
) -> dict[str, Any]:
    sort = one_of(request, "sort", SORTS)
    paging = Paging.of(request, len(found), _LINES)
    return {
        "bars": [
            {**bar, "address": address(min_reward=bar["least"], max_reward=bar["most"])}
            for bar in bars_of(index, found, wanted)
        ],
        "rollouts": [
            {**line, "address": address(group=line["group"]) + f"#m{line['member']}"}
            for line in lines_of(request.app.state.rollouts, index, paging.cut(sorted_rollouts(found, sort)), known)
        ],
        "sort": sort,
        "sorts": {
            name: address(sort=f"-{name}" if sort == name else name) for name in SORTS if not name.startswith("-")
        },
        "paging": paging.as_json(),
    }


def _group(
    request: Request,
    run: FoundRun,
    step: StepName,
    index: RolloutIndex,
    known: Words,
    number: int,
    found: Sequence[FoundRollout],
    address: Address,
) -> dict[str, Any]:
    group = request.app.state.rollouts.group(index, number)
    member = whole(request, "member", None)
    if member is not None and member >= len(group.rollouts):
        raise InputError(f"group {number} has {len(group.rollouts)} rollouts; there is no member {member}")
    by = one_of(request, "by", ("", *quantity_names()))
    view = GroupView(member=member, start=whole(request, "from", None), by=by)
    values = group_values(
        group, step, run.path, request.app.state.rollouts, known, view=view, max_lag=_max_lag(run.record)
    )
    for each in values["members"]:
        each["address"] = address(group=number, member=each["member"])
        each["range_address"] = {
            name: address(**{"group": number, "member": each["member"], "from": place})
            for name, place in (("earlier", max(0, each["start"] - TOKENS_OF_ONE)), ("later", each["end"]))
        }
        for turn in each["turn_starts"]:
            turn["address"] = address(**{"group": number, "member": each["member"], "from": turn["start"]})
    numbers = list(dict.fromkeys(each.group.number for each in found))
    place = numbers.index(number) if number in numbers else None
    return {
        "group": {**values, "address": address(group=number), "ask_address": _ask_address(run, group.rollouts)},
        "previous_group": address(group=numbers[place - 1]) if place else None,
        "next_group": address(group=numbers[place + 1]) if place is not None and place + 1 < len(numbers) else None,
    }


def _address(name: str, step: StepName, query: Mapping[str, Any], **more: Any) -> str:
    """The page of what an address asks for, and of more."""
    asked = urlencode({key: value for key, value in {**query, **more}.items() if value not in (None, "")})
    return run_address(name, f"rollouts/{step}") + (f"?{asked}" if asked else "")


def _ask_address(run: FoundRun, rollouts: Sequence[Rollout]) -> str | None:
    """Address at which the question of a group can be asked again, if its environment logged one."""
    asked = (turn.logs["question"] for rollout in rollouts[:1] for turn in rollout.turns if "question" in turn.logs)
    text, left_out = read_text(next(asked, ""), _MAX_QUESTION)
    return None if left_out else ask_address([run.name], [("user", text)])


def _query_of(wanted: RolloutFilter) -> dict[str, str]:
    """Query of an address for it, without what is not asked for."""
    values = {
        "min_reward": "" if wanted.min_reward == -math.inf else repr(wanted.min_reward),
        "max_reward": "" if wanted.max_reward == math.inf else repr(wanted.max_reward),
        "text": wanted.text,
    }
    return {name: value for name, value in values.items() if value}


def _max_lag(record: Mapping[str, Any]) -> int:
    """Number of steps after which a group may still be trained on."""
    settings = record.get("config")
    value = settings.get("max_lag", 0) if isinstance(settings, dict) else 0
    return min(value, 100) if isinstance(value, int) else 0


def _absent(run: FoundRun, step: StepName) -> UnknownNameError:
    names = [
        str(StepName(each, is_test)) for is_test in (False, True) for each in rollout_steps(run.path, is_test=is_test)
    ]
    return UnknownNameError(
        "step with rollouts", str(step), names, way_out=f"{run.name} has these in its folder so far"
    )


ROUTES = page_and_json("/runs/{name:path}/-/rollouts/{step}", _read, "rollouts_of_step.html")
