"""On-policy distillation from several teachers, one for each environment."""

import chz

from cookhouse.assets import TINY_MODEL
from cookhouse.recipes.on_policy_distillation import Config as OneTeacher
from cookhouse.recipes.on_policy_distillation import workflow
from cookhouse.recipes.program import become_command
from cookhouse.recipes.recipe import Recipe
from cookhouse.settings import Default, by_model, is_embedded, redefault

_TEACHERS = "cookhouse/tiny-arithmetic,cookhouse/tiny-chat"


@chz.chz
class Config(OneTeacher):
    """Settings of the recipe."""

    env: str = redefault(OneTeacher, "env", by_model(embedded="arithmetic,prompts", published="deepmath,tulu3"))
    teacher_model: str | None = redefault(
        OneTeacher,
        "teacher_model",
        Default(
            lambda config: _TEACHERS if is_embedded(config) else None,
            f"{_TEACHERS} for {TINY_MODEL}",
        ),
    )
    max_tokens: int = redefault(OneTeacher, "max_tokens", by_model(embedded=24, published=4096))
    max_steps: int | None = redefault(OneTeacher, "max_steps", by_model(embedded=40, published=None))


RECIPE = Recipe(
    name="multi_teacher_distillation",
    aliases=("on_policy_multi_teacher",),
    description="Learn from several teachers at once, each for its own environment, on what the student answers.",
    config_class=Config,
    workflow=workflow,
)

if __name__ == "__main__":
    become_command(RECIPE)
