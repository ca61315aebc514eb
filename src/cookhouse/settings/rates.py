"""Learning rates of recipes that were published with a model, for that model and for others.

    learning_rate: float = redefault(SupervisedSettings, "learning_rate", published_rate(embedded=5e-3, published=2e-4))

A rate is right for the model that it was measured on. For another one it is by the rule for that, where there is one.
"""

from typing import Any

from cookhouse.assets import TINY_MODEL
from cookhouse.models.catalog.retired import successors
from cookhouse.models.hyperparams import auto_lr, conversation_lr, reward_lr
from cookhouse.models.names import plain_name
from cookhouse.settings.defaults import given, is_left_open
from cookhouse.settings.optimizer import AUTO
from cookhouse.settings.published import ByModel, is_embedded, is_published, published_model_of


class RateDefault(ByModel):
    """The rate that was measured on the embedded model, the published one on its own, and the rule's on all others.

    By reward, and from pairs, rates are lower than for conversations, and the published one is scaled by the width.
    """

    def __init__(self, *, embedded: float, published: float, by_reward: bool) -> None:
        words = f"{embedded:g} for {TINY_MODEL}, {published:g} as published, for other models by their rule (auto)"
        super().__init__(self._usual, words, names={AUTO: self._auto})
        self.embedded, self.published, self.by_reward = embedded, published, by_reward

    def rule(self, config: Any) -> tuple[float, str] | None:
        """The rate by the rule for the model, and which that is; None where there is none."""
        is_lora = config.lora_rank > 0
        if not self.by_reward:
            return conversation_lr(config.model_name, is_lora=is_lora)
        model = published_model_of(type(config))
        return None if model is None else reward_lr(config.model_name, self.published, model, is_lora=is_lora)

    def origin(self, config: Any) -> str:
        """As that of `ByModel`, and `rule` where it is by the rule."""
        if is_embedded(config) or is_published(config) or self.rule(config) is None:
            return super().origin(config)
        return "rule"

    def note(self, config: Any) -> str | None:
        """Note on the source of the learning rate, unless it is set as a number or was measured on the model."""
        if given(config, "learning_rate") == AUTO:
            return self._auto_note(config)
        model = published_model_of(type(config))
        if model is not None and self._is_kept(config, model):
            found = self.rule(config)
            auto = "" if found is None else f"; learning_rate=auto would take {found[0]:.3g}, by {found[1]}"
            return (
                f"{config.model_name} is a successor of {model}, with which the recipe was published and on which "
                f"learning_rate={self.published:g} was measured{auto}"
            )
        if not is_left_open(config, "learning_rate") or is_embedded(config) or is_published(config) or model is None:
            return None
        measured = f"the published {self.published:g} was measured on {model}"
        found = self.rule(config)
        if found is None:
            return f"learning_rate is {self.published:g}: {measured}, and there is no rule for {config.model_name}"
        way_back = f"learning_rate={self.published:g}"
        return f"learning_rate is {found[0]:.3g}, by {found[1]}: {measured}; to take that: {way_back}"

    def _is_kept(self, config: Any, model: str) -> bool:
        """True if the published rate is set for a model that has come in the place of its own."""
        return given(config, "learning_rate") == self.published and plain_name(config.model_name) in successors(model)

    def _auto(self, config: Any, usual: float) -> float:
        return usual if self.by_reward else auto_lr(config.model_name, usual, is_lora=config.lora_rank > 0)[0]

    def _auto_note(self, config: Any) -> str:
        usual = self._usual(config)
        if not self.by_reward:
            return auto_lr(config.model_name, usual, is_lora=config.lora_rank > 0)[1]
        found = None if is_embedded(config) else self.rule(config)
        reason = "the recipe's default" if found is None else f"by {found[1]}"
        return f"learning_rate=auto is {usual:.3g}, {reason}"

    def _usual(self, config: Any) -> float:
        if is_embedded(config):
            return self.embedded
        found = None if is_published(config) else self.rule(config)
        return self.published if found is None else found[0]


def published_rate(*, embedded: float, published: float, by_reward: bool = False) -> RateDefault:
    """The learning rate of a recipe. `by_reward`: it learns by reward, or from pairs of answers."""
    return RateDefault(embedded=embedded, published=published, by_reward=by_reward)
