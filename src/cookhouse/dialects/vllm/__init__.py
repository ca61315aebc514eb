"""vLLM's routes of tokens: requests and answers; whatever cannot be read is a `FieldError`."""

from cookhouse.dialects.vllm.generate import GenerateRequest, Generation
from cookhouse.dialects.vllm.tokenize import DetokenizeRequest, TokenizeRequest

__all__ = ["DetokenizeRequest", "GenerateRequest", "Generation", "TokenizeRequest"]
