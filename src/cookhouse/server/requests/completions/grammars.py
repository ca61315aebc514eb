"""Grammars of what answers are asked to be, checked before the first token."""

import json
import re
from functools import lru_cache

from tinker import ModelInput

from cookhouse.chat import Renderer
from cookhouse.chat.grammars import Grammar, answer_grammar, calls_grammar, json_of, serialize, strict_grammar
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai import AnswerForm, ChatRequest
from cookhouse.errors import InputError

_MAX_LETTERS = 2**18
_MAX_SAID = 500
_QUOTED = re.compile(r"^\s*\d+ \|", re.MULTILINE)


def form_grammar(form: AnswerForm | None) -> str | None:
    """The grammar of a text; None: it is free.

    Raises:
        FieldError: nothing can be held to that form.
    """
    return None if form is None else _checked(serialize(_grammars(form)), form.field)


def chat_grammar(request: ChatRequest, renderer: Renderer, prompt: ModelInput) -> str | None:
    """The grammar of an answer to a conversation; None: it is free. As `form_grammar`."""
    form, choice, tools = request.form(), request.choice(), request.called_tools()
    field = "tools" if form is None else form.field
    try:
        if choice.is_required:
            return _checked(calls_grammar(renderer, prompt, tools, is_single=choice.is_single), "tools")
        if form is not None:
            answer = _grammars(form)
            return _checked(answer_grammar(renderer, prompt, answer, tools, is_single=choice.is_single), field)
        if any(tool["function"]["strict"] for tool in tools) and not (request.ignore_eos or request.min_tokens):
            grammar = strict_grammar(renderer, tools, is_single=choice.is_single)
            return None if grammar is None else _checked(grammar, field)
    except FieldError:
        raise
    except InputError as error:
        raise FieldError("tool_choice" if choice.is_required else field, str(error)) from error
    return None


def _grammars(form: AnswerForm) -> list[Grammar]:
    from llguidance import grammar_from  # a server whose clients ask for no form does not need it

    if form.kind == "json":
        return [{"json_schema": json_of(form.value)}]
    if form.kind == "choice":
        return [{"lark_grammar": grammar_from("choice", json.dumps(form.value))}]
    try:
        found = grammar_from(form.kind, form.value)
    except ValueError as error:
        raise FieldError(form.field, f"{form.field}: {error}") from error
    return [{"lark_grammar": found}] if form.kind == "grammar" else list(json.loads(found)["grammars"])


def _checked(grammar: str, field: str) -> str:
    if len(grammar) > _MAX_LETTERS:
        raise FieldError(field, f"{field} makes a grammar of {len(grammar)} letters; it may have {_MAX_LETTERS}")
    if problem := _problem(grammar):
        raise FieldError(field, f"{field} cannot be followed: {problem}")
    return grammar


@lru_cache(maxsize=64)
def _problem(grammar: str) -> str:
    """What llguidance says against a grammar, without its quotation of that; empty: it takes it."""
    from llguidance import LLMatcher

    is_error, said = LLMatcher.validate_grammar_with_warnings(grammar)
    return " ".join(_QUOTED.split(said[0])[0].split())[:_MAX_SAID] if is_error else ""
