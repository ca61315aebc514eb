"""Somebody with a script over the `tinker` SDK and a config of tinker-cookbook, who wants to keep both."""

import json
import re
import socket
from collections.abc import Callable, Iterator

import pytest
from tests.journeys.journey import Journey
from tests.journeys.terminal import CTRL_C, Terminal

SCRIPT = """\
import tinker
from tinker import types

PAIRS = [("What is the capital of France?", "Paris"), ("What is the capital of Peru?", "Lima")]

service = tinker.ServiceClient()
trainer = service.create_lora_training_client(base_model="Qwen/Qwen3-8B", rank=16).result()
tokenizer = trainer.get_tokenizer()


def datum(question: str, answer: str) -> types.Datum:
    asked, said = tokenizer.encode(f"Question: {question}\\nAnswer:"), tokenizer.encode(f" {answer}\\n")
    tokens, weights = asked + said, [0.0] * len(asked) + [1.0] * len(said)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


data = [datum(*pair) for pair in PAIRS]
for step in range(10):
    done = trainer.forward_backward(data, "cross_entropy")
    trainer.optim_step(types.AdamParams(learning_rate=2e-3)).result()
    print("step", step, "loss", round(done.result().metrics["loss:sum"], 3))

sampler = trainer.save_weights_and_get_sampling_client().result()
prompt = types.ModelInput.from_ints(tokenizer.encode("Question: What is the capital of Peru?\\nAnswer:"))
params = types.SamplingParams(max_tokens=6, temperature=0.0, stop=["\\n"])
print(tokenizer.decode(sampler.sample(prompt, 1, params).result().sequences[0].tokens))
"""
WITH_PEFT = """\
import peft
import torch
import transformers

from cookhouse.assets import resolve_model

base = transformers.AutoModelForCausalLM.from_pretrained(resolve_model("cookhouse/tiny"), dtype="float32")
model = peft.PeftModel.from_pretrained(base, "adapter")
tokenizer = transformers.AutoTokenizer.from_pretrained(resolve_model("cookhouse/tiny"))
prompt = tokenizer("Human: Compute 3 + 4.\\n\\nAI:", return_tensors="pt")
with torch.no_grad():
    said = model.generate(**prompt, max_new_tokens=2, do_sample=False)
print(tokenizer.decode(said[0][prompt["input_ids"].shape[1]:]).strip())
"""
WITH_OPENAI = """\
import sys

import openai

asked = [{"role": "user", "content": "Compute 3 + 4."}]
answer = openai.OpenAI().chat.completions.create(model=sys.argv[1], messages=asked, max_tokens=8, temperature=0)
print(answer.choices[0].message.content)
"""
THEIRS = "env=arithmetic groups_per_batch=8 group_size=8 kl_penalty_coef=0.01 learning_rate=2e-3"
PRICED = "price_per_million=train:1.2,sample:0.9,prefill:0.4"
SAMPLER = "$(grep -o 'tinker://[^\"]*/sampler_weights/final' runs/sums/checkpoints.jsonl)"
STATE = "$(grep -o 'tinker://[^\"]*/weights/final' runs/sums/checkpoints.jsonl)"


def port() -> int:
    """8000 where it is free, for the transcript; else another."""
    for wanted in (8000, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("no port is free")


@pytest.fixture
def serve() -> Iterator[Callable[[Terminal, int], None]]:
    """Serves the embedded model, also under another name, until the test has ended."""
    terminals = []

    def started(terminal: Terminal, number: int) -> None:
        terminals.append(terminal)
        models = "-m cookhouse/tiny -m Qwen/Qwen3-8B=cookhouse/tiny"
        terminal.start(f"cookhouse serve {models} --api-key tml-alice,tml-bob --port {number}")
        terminal.wait_for("serving", seconds=300)

    yield started
    for terminal in terminals:
        terminal.press(CTRL_C)
        terminal.done(seconds=120)


@pytest.mark.long
def test_from_the_hosted_service(
    begin: Callable[..., Journey], serve: Callable[[Terminal, int], None], write_transcripts: bool
) -> None:
    number = port()
    address = f"http://127.0.0.1:{number}"
    journey = begin(
        "from-the-hosted-service",
        "From the hosted service, with a script and a config",
        "tinker",
        OPENAI_BASE_URL=f"{address}/v1",
        OPENAI_API_KEY="tml-alice",
    )
    journey.heading("The script, without any service")
    journey.remark(
        "What he wrote for the hosted service stays as it is. The embedded model stands in for the one that it names: "
        "nothing is downloaded. The refusal has the command to type."
    )
    journey.write("train.py", SCRIPT)
    said = journey.run("cookhouse serve -- python train.py 2>&1 | tail -n 1")
    line = "cookhouse serve -m Qwen/Qwen3-8B=cookhouse/tiny -- python train.py"
    assert "".join(line.split()) in "".join(said.split())  # the terminal breaks it anywhere
    said = journey.run(line)
    assert said.splitlines()[-1].strip() == "Lima"

    journey.heading("The script, against a service")
    journey.remark("In another terminal a service runs, for him and for Bob:")
    journey.remark("`cookhouse serve -m cookhouse/tiny -m Qwen/Qwen3-8B=cookhouse/tiny --api-key tml-alice,tml-bob`")
    serve(journey.terminal.beside(), number)
    journey.remark(f"Here `TINKER_BASE_URL={address}` and `TINKER_API_KEY=tml-alice` are exported.")
    journey.terminal.export(TINKER_BASE_URL=address, TINKER_API_KEY="tml-alice")
    said = journey.run("python train.py")
    assert said.splitlines()[-1].strip() == "Lima"

    journey.heading("What goes wrong")
    said = journey.run("TINKER_API_KEY=sk-12345 cookhouse run math_rl", status=2)
    assert "a key starts with 'tml-'" in said
    said = journey.run("TINKER_API_KEY=tml-mallory cookhouse run math_rl", status=2)
    assert "the API key is not one of this server's" in one_line(said)
    said = journey.run("TINKER_BASE_URL=http://127.0.0.1:9 cookhouse run math_rl", status=1)
    assert "no service answers at http://127.0.0.1:9" in one_line(said)
    said = journey.run("sed s/Qwen3-8B/Qwen3-32B/ train.py | python 2>&1 | tail -n 2")
    assert "unknown base model 'Qwen/Qwen3-32B'; did you mean Qwen/Qwen3-8B?" in one_line(said)

    journey.heading("The config, in its own words")
    journey.remark("The names of tinker-cookbook are taken; the plan has ours, and what the run will cost.")
    said = journey.run(f"cookhouse run recipes.math_rl.train {THEIRS} max_steps=6 num_eval=16 {PRICED} --dry-run")
    for fact in ("batch_size = 8", "kl_coef = 0.01", "cost ", "at most 3,072 tokens sampled"):
        assert fact in said
    said = journey.run(
        f"cookhouse run recipes.math_rl.train {THEIRS} max_steps=6 num_eval=16 {PRICED} log_path=runs/sums "
        "train_unembed=false max_tokens_total=4000",
        status=75,
    )
    assert "max_tokens_total=4000 is reached" in one_line(said)
    assert "max_tokens_total=8000" in said
    journey.remark(
        "It ends at a step, saves, and prints the command that goes on. He allows more than that. Without the output "
        "projection (`train_unembed=false`) `peft` will load the adapter as the service gives it."
    )
    said = journey.run("cookhouse runs resume sums max_tokens_total=100000")
    assert "done after 6 of 6 steps" in said
    assert re.search(r"^cost +0\.\d+, by train 1\.2", said, re.MULTILINE)

    journey.heading("The weights")
    journey.run("tinker checkpoint list")
    said = journey.run("cookhouse checkpoints export sums adapter", status=2)
    assert "tinker checkpoint download tinker://" in one_line(said)
    journey.run(f'tinker checkpoint download "{STATE}" --output saved && mv saved/* adapter')
    assert json.loads((journey.folder / "adapter/adapter_config.json").read_text())["peft_type"] == "LORA"
    journey.write("with_peft.py", WITH_PEFT)
    loaded = journey.run("python -W ignore with_peft.py").splitlines()[-1]
    journey.write("with_openai.py", WITH_OPENAI)
    asked = journey.run(f'python with_openai.py "{SAMPLER}"').splitlines()[-1]
    assert asked.split()[:1] == loaded.split()[:1], "peft, and the service by OpenAI's protocol, say the same"

    journey.heading("For somebody else")
    journey.remark("Weights of one key do not exist for another, until they are published.")
    said = journey.run(f"TINKER_API_KEY=tml-bob cookhouse sample \"{SAMPLER}\" 'Compute 3 + 4.'", status=2)
    assert "error:" in said
    journey.run(f'tinker checkpoint publish "{SAMPLER}"')
    said = journey.run(f"TINKER_API_KEY=tml-bob cookhouse sample \"{SAMPLER}\" 'Compute 3 + 4.'")
    assert said.splitlines()[-1].split()[:1] == asked.split()[:1]
    journey.check(write=write_transcripts)


def one_line(said: str) -> str:
    """What stood on the screen, as if it had been wide enough; paths that the terminal broke are not mended."""
    return " ".join(said.split())
