"""Two steps of ART's TinkerNativeBackend by rewards: `try_art.py MODEL`. It imports nothing of ours."""

import asyncio
import math
import sys
import tempfile

import art  # type: ignore[import-not-found]
from art.tinker_native import TinkerNativeBackend  # type: ignore[import-not-found]

_QUESTION = {"role": "user", "content": "Say yes"}


async def main(base_model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"renderer_name": "qwen3", "training_client_args": {"rank": 8}}
        model = art.TrainableModel(
            name="agent", project="tried", base_model=base_model, _internal_config={"tinker_native_args": arguments}
        )
        backend = TinkerNativeBackend(path=folder)
        await model.register(backend)
        client = model.openai_client()

        async def rollout() -> art.Trajectory:
            answer = await client.chat.completions.create(
                model=model.get_inference_name(), messages=[_QUESTION], max_tokens=8
            )
            choice = answer.choices[0]
            reward = float(len(choice.message.content or "") % 5)
            return art.Trajectory(messages_and_choices=[_QUESTION, choice], reward=reward)

        for step in (1, 2):
            groups = await art.gather_trajectory_groups(
                art.TrajectoryGroup(rollout() for _ in range(4)) for _ in range(3)
            )
            result = await backend.train(model, groups, learning_rate=1e-3, save_checkpoint=True)
            assert result.step == step
            assert math.isfinite(result.metrics["loss:sum"])
        await backend.close()


asyncio.run(main(sys.argv[1]))
