"""Environments: problems of one turn, games, and adapters for those of other libraries."""

from cookhouse.data import HubSplit
from cookhouse.envs.dataset import EnvConfig, GroupDataset, evenly_spaced
from cookhouse.envs.environments import (
    ENVIRONMENTS,
    EnvironmentBuilder,
    Environments,
    Mixed,
    environment_tag,
    have_several_turns,
    have_tools,
    parse_environments,
    reads_setting,
)
from cookhouse.envs.games.self_play import RaceGame, RaceGroupBuilder, RacePlayerEnv, SelfPlayConfig
from cookhouse.envs.games.twenty_questions import Secret, TwentyQuestionsConfig, TwentyQuestionsEnv
from cookhouse.envs.libraries.textarena import TextArenaConfig, TextArenaGroupBuilder
from cookhouse.envs.libraries.verifiers import VerifiersConfig
from cookhouse.envs.problems.arithmetic import ArithmeticConfig, ArithmeticEnv, ArithmeticProblem
from cookhouse.envs.problems.code import CodeEnv, CodeGrading, CodeProblem
from cookhouse.envs.problems.custom import MessageEnvironments, message_environments
from cookhouse.envs.problems.deepcoder import DeepCoderConfig
from cookhouse.envs.problems.judge import open_preference_model, preference_format
from cookhouse.envs.problems.math import MathConfig, MathEnv, MathProblem
from cookhouse.envs.problems.problem import EnvFactoryGroupBuilder, ProblemEnv, ProblemGroupBuilder
from cookhouse.envs.problems.prompts import PromptEnv, PromptsConfig
from cookhouse.envs.problems.python_functions import PythonFunctionsConfig
from cookhouse.envs.problems.tournament import (
    AnswerEnv,
    TournamentConfig,
    TournamentGroupBuilder,
    TournamentPrompt,
    meetings,
)
from cookhouse.envs.prompting import Prompting
from cookhouse.envs.rows import read_problems
from cookhouse.envs.second_model import OpenSampler, SecondModels, TwoModelBuilder

__all__ = [
    "ENVIRONMENTS",
    "AnswerEnv",
    "ArithmeticConfig",
    "ArithmeticEnv",
    "ArithmeticProblem",
    "CodeEnv",
    "CodeGrading",
    "CodeProblem",
    "DeepCoderConfig",
    "EnvConfig",
    "EnvFactoryGroupBuilder",
    "EnvironmentBuilder",
    "Environments",
    "GroupDataset",
    "HubSplit",
    "MathConfig",
    "MathEnv",
    "MathProblem",
    "MessageEnvironments",
    "Mixed",
    "OpenSampler",
    "ProblemEnv",
    "ProblemGroupBuilder",
    "PromptEnv",
    "Prompting",
    "PromptsConfig",
    "PythonFunctionsConfig",
    "RaceGame",
    "RaceGroupBuilder",
    "RacePlayerEnv",
    "SecondModels",
    "Secret",
    "SelfPlayConfig",
    "TextArenaConfig",
    "TextArenaGroupBuilder",
    "TournamentConfig",
    "TournamentGroupBuilder",
    "TournamentPrompt",
    "TwentyQuestionsConfig",
    "TwentyQuestionsEnv",
    "TwoModelBuilder",
    "VerifiersConfig",
    "environment_tag",
    "evenly_spaced",
    "have_several_turns",
    "have_tools",
    "meetings",
    "message_environments",
    "open_preference_model",
    "parse_environments",
    "preference_format",
    "read_problems",
    "reads_setting",
]
