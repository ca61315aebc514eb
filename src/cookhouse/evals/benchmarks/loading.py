"""Benchmarks with their items: which of them, read from where, and how many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.data import DataSource, HubSource, HubSplit, data_source
from cookhouse.envs import evenly_spaced
from cookhouse.errors import InputError
from cookhouse.evals.benchmarks.benchmark import BENCHMARKS, Benchmark, BenchmarkItem
from cookhouse.naming import names_in

_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")


@dataclass(frozen=True, kw_only=True)
class LoadedBenchmark:
    """A benchmark, and those of its items that are asked, by their places among all of them."""

    benchmark: Benchmark
    items: Mapping[int, BenchmarkItem]
    num_all: int

    @property
    def name(self) -> str:
        return self.benchmark.name


def benchmarks_named(text: str) -> list[Benchmark]:
    """The benchmarks of a text that has their names separated by commas.

    Raises:
        UnknownNameError: there is no such benchmark.
        InputError: none is named, one cannot be imported, or two have one name.
    """
    found = [BENCHMARKS.find(name) for name in names_in(text)]
    names = [benchmark.name for benchmark in found]
    if not names:
        raise InputError(f"no benchmark is named; give one or more of {', '.join(BENCHMARKS.names())}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"benchmark {', '.join(twice)} is named twice; name it once")
    return found


def sources_of_benchmarks(benchmarks: Sequence[Benchmark], given: str | None) -> dict[str, DataSource]:
    """Sources of each benchmark's rows, by its name. `given` is a folder that has a file for each, `NAME=SOURCE`
    for some of them, separated by commas, or the source of the only one; None: where each is by itself.

    Raises:
        InputError: a folder has no file for a benchmark, or one source is given for several of them.
    """
    if given is None:
        return {each.name: _own_source(each) for each in benchmarks}
    if Path(given).is_dir():
        return {each.name: _source_in(Path(given), each) for each in benchmarks}
    named = dict(part.split("=", 1) for part in names_in(given) if "=" in part)
    if not named:
        if len(benchmarks) > 1:
            raise InputError(
                f"benchmark_data is {given!r}, and there are {len(benchmarks)} benchmarks; give a folder with a file "
                f"for each, or NAME=FILE for each, such as {benchmarks[0].name}={given}"
            )
        named = {benchmarks[0].name: given}
    if unknown := sorted(named.keys() - {each.name for each in benchmarks}):
        raise InputError(
            f"benchmark_data names {', '.join(unknown)}, which is not evaluated; "
            f"the benchmarks are {', '.join(each.name for each in benchmarks)}"
        )
    return {
        each.name: data_source(named[each.name]) if each.name in named else _own_source(each) for each in benchmarks
    }


def load_benchmark(benchmark: Benchmark, source: DataSource, limit: int | None) -> LoadedBenchmark:
    """Read a benchmark: all of its items, or `limit` that are evenly spaced among them.

    Raises:
        InputError: the source cannot be read, or holds no problems.
        BadRowsError: rows are none of this benchmark's, each by file and line.
    """
    items = benchmark.read(source)
    places = range(len(items)) if limit is None else evenly_spaced(range(len(items)), limit)
    return LoadedBenchmark(benchmark=benchmark, items={place: items[place] for place in places}, num_all=len(items))


def _own_source(benchmark: Benchmark) -> DataSource:
    source = benchmark.source
    return HubSource(split=source) if isinstance(source, HubSplit) else data_source(source)


def _source_in(folder: Path, benchmark: Benchmark) -> DataSource:
    """The file of a benchmark in a folder: NAME.jsonl, there or one folder below; or test.jsonl of NAME/, or the only
    file of it. One that is a file by itself need not be there.
    """
    name = benchmark.name
    wanted = {name.lower() + suffix for suffix in _SUFFIXES}
    files = sorted(path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.suffix in _SUFFIXES)
    exact = [path for path in files if path.name.lower() in wanted]
    own = [path for path in files if path.parent.name.lower() == name.lower() and path.parent != folder]
    found = exact or [path for path in own if path.stem == "test"] or own
    if len(found) == 1:
        return data_source(found[0])
    if not found and not isinstance(benchmark.source, HubSplit):
        return _own_source(benchmark)
    several = f"several files of {name} ({', '.join(map(str, found))})"
    raise InputError(
        f"the folder {folder} has {several if found else f'no {name}.jsonl, nor a folder {name} of one file'}; "
        f"give the file itself, as benchmark_data={name}=FILE"
    )
