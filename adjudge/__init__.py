"""adjudge: LLM judges as rewards, fast enough to sit inside a training step.

from adjudge import Engine, Pair, PointwisePairJudge

judge = PointwisePairJudge(Engine("house"))
[verdict] = judge.compare([Pair(prompt="…", a="…", b="…")])
print(verdict.preference)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjudge.engine.answers import AnswerFormat
    from adjudge.engine.async_engine import AsyncEngine
    from adjudge.engine.cluster.cluster_engine import ClusterEngine
    from adjudge.engine.completion import Completion
    from adjudge.engine.embedding import Embedding
    from adjudge.engine.engine import Engine
    from adjudge.engine.errors import AdjudgeError
    from adjudge.engine.labels import Labels
    from adjudge.engine.prompt import Message, Prompt, Segment
    from adjudge.engine.remote.remote_engine import RemoteEngine
    from adjudge.engine.sampling import Sampling
    from adjudge.engine.score import Score
    from adjudge.rewards.accuracy_reward import AccuracyReward
    from adjudge.rewards.aspects import HANNA, PERSE, STORYER, Aspect
    from adjudge.rewards.checks import Check, CheckReward, SectionReward
    from adjudge.rewards.combining import Product, WeightedSum
    from adjudge.rewards.debate import DebateJudge
    from adjudge.rewards.ensemble import ensemble
    from adjudge.rewards.function_reward import FunctionReward
    from adjudge.rewards.gated import Gated
    from adjudge.rewards.gates import FormatReward, LanguageReward, LengthReward, PatternReward, RepetitionReward
    from adjudge.rewards.group import Group, GroupVerdict, Outcome
    from adjudge.rewards.guards.guarded import Guarded
    from adjudge.rewards.guards.length_free import LengthFree
    from adjudge.rewards.journal import Journal
    from adjudge.rewards.judge_reward import JudgeReward
    from adjudge.rewards.pairwise import PairwiseJudge
    from adjudge.rewards.personal import PersonalJudge, PersonalPairJudge
    from adjudge.rewards.pointwise import PointwiseJudge, PointwisePairJudge
    from adjudge.rewards.principle import PrincipleJudge, read_principles
    from adjudge.rewards.references import DynamicReference, StaticReference
    from adjudge.rewards.retrieval import EngineEmbedder, Index
    from adjudge.rewards.reward import GroupReward, Reward
    from adjudge.rewards.rubric import Criterion, Rubric, read_rubric
    from adjudge.rewards.rubric_judge import RubricJudge
    from adjudge.rewards.scalar import ScalarJudge
    from adjudge.rewards.specification import EngineSpec, JudgeSpec
    from adjudge.rewards.story_formulas import STORY_ASPECTS, ComponentWeights, LengthWindow
    from adjudge.rewards.story_reward import StoryReward, pointwise_story_reward
    from adjudge.rewards.tournament import Tournament
    from adjudge.rewards.tournament_reward import TournamentReward
    from adjudge.rewards.trainers.openrlhf import for_openrlhf
    from adjudge.rewards.trainers.slime import for_slime
    from adjudge.rewards.trainers.verl import for_verl, for_verl_batch
    from adjudge.rewards.tree import TreeJudge
    from adjudge.rewards.verdict import (
        AspectVerdict,
        Comparison,
        Example,
        Item,
        Pair,
        PairVerdict,
        Part,
        Review,
        Verdict,
    )

__version__ = "0.1.0"

_HOMES = {
    "adjudge.engine.answers": ("AnswerFormat",),
    "adjudge.engine.async_engine": ("AsyncEngine",),
    "adjudge.engine.cluster.cluster_engine": ("ClusterEngine",),
    "adjudge.engine.completion": ("Completion",),
    "adjudge.engine.embedding": ("Embedding",),
    "adjudge.engine.engine": ("Engine",),
    "adjudge.engine.errors": ("AdjudgeError",),
    "adjudge.engine.labels": ("Labels",),
    "adjudge.engine.prompt": ("Message", "Prompt", "Segment"),
    "adjudge.engine.remote.remote_engine": ("RemoteEngine",),
    "adjudge.engine.sampling": ("Sampling",),
    "adjudge.engine.score": ("Score",),
    "adjudge.rewards.accuracy_reward": ("AccuracyReward",),
    "adjudge.rewards.aspects": ("HANNA", "PERSE", "STORYER", "Aspect"),
    "adjudge.rewards.combining": ("Product", "WeightedSum"),
    "adjudge.rewards.debate": ("DebateJudge",),
    "adjudge.rewards.ensemble": ("ensemble",),
    "adjudge.rewards.function_reward": ("FunctionReward",),
    "adjudge.rewards.gated": ("Gated",),
    "adjudge.rewards.checks": ("Check", "CheckReward", "SectionReward"),
    "adjudge.rewards.gates": ("FormatReward", "LanguageReward", "LengthReward", "PatternReward", "RepetitionReward"),
    "adjudge.rewards.group": ("Group", "GroupVerdict", "Outcome"),
    "adjudge.rewards.guards.guarded": ("Guarded",),
    "adjudge.rewards.guards.length_free": ("LengthFree",),
    "adjudge.rewards.journal": ("Journal",),
    "adjudge.rewards.judge_reward": ("JudgeReward",),
    "adjudge.rewards.pairwise": ("PairwiseJudge",),
    "adjudge.rewards.personal": ("PersonalJudge", "PersonalPairJudge"),
    "adjudge.rewards.pointwise": ("PointwiseJudge", "PointwisePairJudge"),
    "adjudge.rewards.principle": ("PrincipleJudge", "read_principles"),
    "adjudge.rewards.references": ("DynamicReference", "StaticReference"),
    "adjudge.rewards.retrieval": ("EngineEmbedder", "Index"),
    "adjudge.rewards.reward": ("GroupReward", "Reward"),
    "adjudge.rewards.rubric": ("Criterion", "Rubric", "read_rubric"),
    "adjudge.rewards.rubric_judge": ("RubricJudge",),
    "adjudge.rewards.scalar": ("ScalarJudge",),
    "adjudge.rewards.specification": ("EngineSpec", "JudgeSpec"),
    "adjudge.rewards.story_formulas": ("STORY_ASPECTS", "ComponentWeights", "LengthWindow"),
    "adjudge.rewards.story_reward": ("StoryReward", "pointwise_story_reward"),
    "adjudge.rewards.tournament": ("Tournament",),
    "adjudge.rewards.tournament_reward": ("TournamentReward",),
    "adjudge.rewards.trainers.openrlhf": ("for_openrlhf",),
    "adjudge.rewards.trainers.slime": ("for_slime",),
    "adjudge.rewards.trainers.verl": ("for_verl", "for_verl_batch"),
    "adjudge.rewards.tree": ("TreeJudge",),
    "adjudge.rewards.verdict": (
        "AspectVerdict",
        "Comparison",
        "Example",
        "Item",
        "Pair",
        "PairVerdict",
        "Part",
        "Review",
        "Verdict",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "HANNA",
    "PERSE",
    "STORYER",
    "STORY_ASPECTS",
    "AccuracyReward",
    "AdjudgeError",
    "AnswerFormat",
    "Aspect",
    "AspectVerdict",
    "AsyncEngine",
    "Check",
    "CheckReward",
    "ClusterEngine",
    "Comparison",
    "Completion",
    "ComponentWeights",
    "Criterion",
    "DebateJudge",
    "DynamicReference",
    "Embedding",
    "Engine",
    "EngineEmbedder",
    "EngineSpec",
    "Example",
    "FormatReward",
    "FunctionReward",
    "Gated",
    "Group",
    "GroupReward",
    "GroupVerdict",
    "Guarded",
    "Index",
    "Item",
    "Journal",
    "JudgeReward",
    "JudgeSpec",
    "Labels",
    "LanguageReward",
    "LengthFree",
    "LengthReward",
    "LengthWindow",
    "Message",
    "Outcome",
    "Pair",
    "PairVerdict",
    "PairwiseJudge",
    "Part",
    "PatternReward",
    "PersonalJudge",
    "PersonalPairJudge",
    "PointwiseJudge",
    "PointwisePairJudge",
    "PrincipleJudge",
    "Product",
    "Prompt",
    "RemoteEngine",
    "RepetitionReward",
    "Review",
    "Reward",
    "Rubric",
    "RubricJudge",
    "Sampling",
    "ScalarJudge",
    "Score",
    "SectionReward",
    "Segment",
    "StaticReference",
    "StoryReward",
    "Tournament",
    "TournamentReward",
    "TreeJudge",
    "Verdict",
    "WeightedSum",
    "ensemble",
    "for_openrlhf",
    "for_slime",
    "for_verl",
    "for_verl_batch",
    "pointwise_story_reward",
    "read_principles",
    "read_rubric",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import adjudge` loads neither torch nor transformers."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'adjudge' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
