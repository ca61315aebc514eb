"""Train the byte-level BPE tokenizer of the embedded model: `python -m scripts.tiny_tokenizer FOLDER`.

Its special tokens, normalizer and splitting into words are Qwen3's, so that whatever works on a Qwen3 tokenizer works
on this one. The chat template beside it (`chat_template.jinja`, Qwen3's) is not written here.
"""

import argparse
import itertools
import json
from pathlib import Path

from scripts.tiny_world import documents
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCABULARY_SIZE = 2048
NUM_DOCUMENTS = 40_000
MAX_LENGTH = 2048
# Qwen3's: every digit is a token of its own, a space belongs to the word after it.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Qwen3's special tokens in its order; the first group is hidden when decoding with `skip_special_tokens`.
_CONTROL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEXT_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


def train(seed: int) -> Tokenizer:
    """A tokenizer of `VOCABULARY_SIZE` tokens, the special ones last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = (*_CONTROL_TOKENS, *_TEXT_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = itertools.islice(documents(seed), NUM_DOCUMENTS)
    tokenizer.train_from_iterator((_without(special, text) for text in texts), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in _TEXT_TOKENS])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and the configuration by which `transformers` loads it."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "add_prefix_space": False,
        "additional_special_tokens": list(_CONTROL_TOKENS[1:]),
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": MAX_LENGTH,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _without(special: tuple[str, ...], text: str) -> str:
    for token in special:
        text = text.replace(token, "\n")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokenizer = train(arguments.seed)
    save(tokenizer, arguments.folder)
    print(f"{tokenizer.get_vocab_size()} tokens in {arguments.folder}")


if __name__ == "__main__":
    main()
