"""Have the model of a server answer by each schema of the public JSON Schema Test Suite: `make test-schemas`.

The suite lies in the source archive of jsonschema, which comes from pip's index and is kept in build/schemas.
What the server refuses is counted; what it ends by itself must be valid; what max_tokens cuts may be anything.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import jsonschema
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7, DRAFT201909, DRAFT202012

from cookhouse.assets import TINY_MODEL

_FOLDER = Path(__file__).parents[1] / "build" / "schemas"
_ARCHIVE = "jsonschema-4.26.0.tar.gz"
_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
_SUITE = f"{_ARCHIVE.removesuffix('.tar.gz')}/json/"
_DRAFTS: dict[str, tuple[type[Validator], Any]] = {
    "draft7": (jsonschema.Draft7Validator, DRAFT7),
    "draft2019-09": (jsonschema.Draft201909Validator, DRAFT201909),
    "draft2020-12": (jsonschema.Draft202012Validator, DRAFT202012),
}
_NUM_ROWS = 32
_RESULTS = "refused", "valid", "cut", "wrong"
_PROMPT = "Answer in JSON."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    draft: str
    name: str
    schema: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    case: _Case
    result: str
    """One of `_RESULTS`."""
    text: str = ""
    said: str = ""
    """Why it was refused, or is wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.schema_suite", description=__doc__)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reasons", action="store_true", help="list the sentences of refusals, with their number")
    options = parser.parse_args(arguments)
    suite = _read_suite()
    cases, registries = [*_cases(suite)], _registries(suite)
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    with (
        httpx.Client(base_url=os.environ["OPENAI_BASE_URL"], headers=headers, timeout=600) as client,
        ThreadPoolExecutor(_NUM_ROWS) as pool,
    ):

        def ask(case: _Case) -> _Answer:
            return _ask(client, case, registries[case.draft], max_tokens=options.max_tokens, seed=options.seed)

        answers = [*pool.map(ask, cases)]
    if options.reasons:
        said = Counter(answer.said for answer in answers if answer.result == "refused")
        print("".join(f"{number:5} {sentence}\n" for sentence, number in said.most_common()))
    for wrong in (answer for answer in answers if answer.result == "wrong"):
        print(f"{wrong.case.name}: {wrong.said}\n  {json.dumps(wrong.case.schema)}\n  {wrong.text!r}")
    print(_table(answers))
    return 1 if any(answer.result == "wrong" for answer in answers) else 0


def _table(answers: Sequence[_Answer]) -> str:
    titles = ["draft", "different schemas", "refused", "taken", "valid", "cut by max_tokens", "wrong"]
    rows = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for title in (*_DRAFTS, "all"):
        found = Counter(answer.result for answer in answers if title in (answer.case.draft, "all"))
        numbers = [found[name] for name in _RESULTS]
        cells = [title, sum(numbers), numbers[0], sum(numbers[1:]), *numbers[1:]]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def _ask(client: httpx.Client, case: _Case, registry: Any, *, max_tokens: int, seed: int) -> _Answer:
    described = {"name": "suite", "schema": case.schema, "strict": True}
    answer = client.post(
        "/chat/completions",
        json={
            "model": TINY_MODEL,
            "messages": [{"role": "user", "content": _PROMPT}],
            "response_format": {"type": "json_schema", "json_schema": described},
            "temperature": 1.0,
            "max_tokens": max_tokens,
            "seed": seed,
        },
    )
    if answer.status_code == 400:
        return _Answer(case=case, result="refused", said=answer.json()["error"]["message"])
    if answer.status_code != 200:
        return _Answer(case=case, result="wrong", said=f"{answer.status_code}: {answer.text}")
    (choice,) = answer.json()["choices"]
    text = choice["message"]["content"] or ""
    if choice["finish_reason"] == "length":
        return _Answer(case=case, result="cut", text=text)
    try:
        value = json.loads(text)
    except ValueError as error:
        return _Answer(case=case, result="wrong", text=text, said=f"no JSON: {error}")
    validator = _DRAFTS[case.draft][0](case.schema, registry=registry)
    problem = next(iter(validator.iter_errors(value)), None)
    result = "valid" if problem is None else "wrong"
    return _Answer(case=case, result=result, text=text, said="" if problem is None else problem.message)


def _cases(suite: dict[str, Any]) -> Iterator[_Case]:
    """Schemas of which no two are equal."""
    seen = set()
    for name, groups in suite.items():
        draft = name.removeprefix("tests/").partition("/")[0]
        if draft not in _DRAFTS:
            continue
        for group in groups:
            # Those of draft 7 do not name it, and without a name they would be read as of the newest.
            schema = group["schema"]
            named = (
                {"$schema": _DRAFTS[draft][0].META_SCHEMA["$schema"], **schema} if isinstance(schema, dict) else schema
            )
            written = json.dumps(named, sort_keys=True)
            if written not in seen:
                seen.add(written)
                yield _Case(draft=draft, name=f"{name}: {group['description']}", schema=named)


def _registries(suite: dict[str, Any]) -> dict[str, Any]:
    """By draft, the schemas that others of the suite name by an address."""
    remotes = {name.removeprefix("remotes/"): schema for name, schema in suite.items() if name.startswith("remotes/")}
    return {
        draft: Registry().with_resources(
            (f"http://localhost:1234/{name}", Resource.from_contents(schema, default_specification=specification))
            for name, schema in remotes.items()
        )
        for draft, (_, specification) in _DRAFTS.items()
    }


def _read_suite() -> dict[str, Any]:
    """The JSON files of the suite by their names."""
    path = _FOLDER / _ARCHIVE
    if not path.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_download())
    with tarfile.open(path) as archive:
        files = {
            member.name.removeprefix(_SUITE): archive.extractfile(member)
            for member in sorted(archive.getmembers(), key=lambda member: member.name)
            if member.name.startswith(_SUITE) and member.name.endswith(".json")
        }
        return {name: json.load(file) for name, file in files.items() if file is not None}


def _download() -> bytes:
    index = _index()
    page = httpx.get(f"{index}/jsonschema/", follow_redirects=True, timeout=60).raise_for_status()
    found = re.search(rf'href="([^"#]*/{re.escape(_ARCHIVE)})[^"]*"', page.text)
    if found is None:
        raise SystemExit(f"{index} has no {_ARCHIVE}")
    content = httpx.get(urljoin(str(page.url), found[1]), follow_redirects=True, timeout=60).raise_for_status().content
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise SystemExit(f"{_ARCHIVE} from {index} is another file than the published one")
    return content


def _index() -> str:
    """The package index that pip asks."""
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(pip, capture_output=True, text=True, check=False).stdout.strip()
    return (os.environ.get("PIP_INDEX_URL") or told or "https://pypi.org/simple").rstrip("/")


if __name__ == "__main__":
    sys.exit(main())
