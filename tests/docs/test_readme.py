"""The first page: it has every recipe, and fits what a reader sees first."""

from pathlib import Path

from tests.docs.test_reference import first_cells

from cookhouse.recipes import every_recipe

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_recipes_has_every_recipe() -> None:
    # Catches a recipe that was added or renamed without the page.
    table = README.split("\n## Recipes\n")[1].split("\n## ")[0]
    assert sorted(first_cells(table)) == sorted(recipe.name for recipe in every_recipe())


def test_what_a_newcomer_asks_is_on_the_first_screen() -> None:
    # Catches a command, the GPU or the other cookbook's users pushed below what one sees without scrolling.
    first_screen = "\n".join(README.splitlines()[:32])
    for text in ("make run", 'pip install "cookhouse[engine]"', "NVIDIA GPU", "3.11", "from-tinker-cookbook.md"):
        assert text in first_screen, text


def test_it_is_short() -> None:
    assert len(README.split()) <= 1000
