"""Fields of requests that a recorded call cannot have: what is trained is what the run's weights say by themselves."""

from cookhouse.chat import Renderer
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai.chat import ChatRequest

_NOTHING: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "ignore_eos": (None, False),
    "n": (None, 1),
    "stop": (None, []),
    "stop_token_ids": (None, []),
    "top_logprobs": (None, 0),
    "prompt_logprobs": (None,),
    "continue_final_message": (None, False),
}
"""Values with which a field asks for nothing."""


def check_trainable(request: ChatRequest, renderer: Renderer) -> None:
    """Refuse what would make an answer of another distribution than the one that is trained. `temperature`, `top_p`,
    `top_k` and `seed` are the run's, whatever a request says.

    Raises:
        FieldError: names the field.
    """
    for name, nothing in _NOTHING.items():
        if getattr(request, name) not in nothing:
            raise FieldError(
                name, f"{name} is not offered in a rollout that is trained; leave it out", code="unsupported_parameter"
            )
    form = request.form()
    if form is not None or request.choice().is_required:
        name = "tool_choice" if form is None else form.field
        raise FieldError(
            name,
            f"{name}: the form of an answer cannot be forced in a rollout that is trained; ask for it in words",
            code="unsupported_parameter",
        )
    if request.thinks not in (None, renderer.thinks):
        raise FieldError(
            "chat_template_kwargs.enable_thinking",
            "whether the model thinks is the run's renderer_name; leave enable_thinking out",
            code="unsupported_parameter",
        )
