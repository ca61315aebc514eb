"""What is said of a page that cannot be shown."""

from starlette.testclient import TestClient


def assert_refused(client: TestClient, path: str, status: int, said: str) -> None:
    """Both the page and its JSON are refused with this status, and the reason has these words."""
    answer = client.get(f"/api/{path}")
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert client.get(f"/{path}").status_code == status
