"""Catches threads and budgets taken from the machine where a container has less."""

from pathlib import Path

import pytest

from cookhouse.engine.control_groups import ControlGroups


def _write(folder: Path, **files: str) -> None:
    """Files of a group, a double underscore for the dot in a name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def _memory(folder: Path, version: int, limit: str, used: int, inactive: int) -> None:
    if version == 2:
        _write(folder, memory__max=limit, memory__current=str(used), memory__stat=f"anon 1\ninactive_file {inactive}")
        return
    counts = f"inactive_file 9999\ntotal_inactive_file {inactive}"
    _write(folder, memory__limit_in_bytes=limit, memory__usage_in_bytes=str(used), memory__stat=counts)


def _groups(tmp_path: Path, membership: str) -> ControlGroups:
    (tmp_path / "cgroup").write_text(membership)
    return ControlGroups(tmp_path / "cgroup", tmp_path / "root")


_LAYOUTS = {
    "version 2": (2, "0::/pod/box\n", "", "max"),
    "version 1": (1, "5:devices:/\n4:memory:/pod/box\n0::/\n", "memory", "9223372036854771712"),
    "both, the limit in version 2": (2, "4:cpu:/\n0::/pod/box\n", "unified", "max"),
}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_the_tightest_limit_of_memory_counts(layout: str, tmp_path: Path) -> None:
    version, membership, mount, unlimited = _LAYOUTS[layout]
    pod = tmp_path / "root" / mount / "pod"
    _memory(pod / "box", version, unlimited, 600, 0)
    groups = _groups(tmp_path, membership)
    assert groups.free_bytes() is None
    _memory(pod, version, "1000", 700, 50)
    assert groups.free_bytes() == 350
    _memory(pod / "box", version, "800", 600, 20)
    assert groups.free_bytes() == 220
    _memory(pod, version, "1000", 2000, 50)
    assert groups.free_bytes() == 0


def test_the_tightest_quota_of_time_counts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    second = _groups(tmp_path, "0::/pod/box\n")
    _write(root / "pod" / "box", cpu__max="max 100000")
    assert second.num_cores() is None
    _write(root / "pod", cpu__max="150000 100000")
    assert second.num_cores() == 1.5
    first = _groups(tmp_path, "3:cpuacct,cpu:/pod\n")
    assert first.num_cores() is None
    _write(root / "cpuacct,cpu" / "pod", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert first.num_cores() is None
    _write(root / "cpuacct,cpu", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert first.num_cores() == 0.5


def test_inside_a_container_the_path_is_the_hosts(tmp_path: Path) -> None:
    """Only the container's own folder is mounted there, in the place of the outermost."""
    _memory(tmp_path / "root" / "memory", 1, "500", 100, 0)
    _write(tmp_path / "root" / "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    groups = _groups(tmp_path, "4:memory:/docker/0123\n2:cpu:/docker/0123\n")
    assert (groups.free_bytes(), groups.num_cores()) == (400, 2.0)


def test_a_path_never_leaves_the_mount(tmp_path: Path) -> None:
    _memory(tmp_path / "secret", 2, "1", 1, 0)
    assert _groups(tmp_path, "0::/../../secret\n").free_bytes() is None


@pytest.mark.parametrize("membership", [None, "", "nonsense\n", "4:memory:/old\n", "0::/\n"])
def test_without_limits_there_are_none(membership: str | None, tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path / "none") if membership is None else _groups(tmp_path, membership)
    assert (groups.free_bytes(), groups.num_cores()) == (None, None)


def test_files_that_make_no_sense_limit_nothing(tmp_path: Path) -> None:
    """Would catch an engine that does not start for a file of a kernel to come."""
    _write(tmp_path / "root", cpu__max="much", memory__max="1000", memory__current="?", memory__stat="")
    groups = _groups(tmp_path, "0::/\n")
    assert (groups.free_bytes(), groups.num_cores()) == (None, None)
