"""A teacher at another service."""

import pytest

from cookhouse.errors import InputError
from cookhouse.workflows.distillation.teachers import connect_to_teacher


def test_the_key_of_a_run_s_service_is_not_sent_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-the-run")
    monkeypatch.delenv("TEACHER_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"teacher_base_url=http://teacher needs the key .* set it in TEACHER_API_KEY"):
        connect_to_teacher(None, "http://teacher")
    monkeypatch.setenv("TEACHER_API_KEY", "tml-of-the-teacher")
    assert connect_to_teacher(None, "http://teacher") is not None
    assert connect_to_teacher(None, None) is None
