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
    from adjudge.engine.async_engine import AsyncEngine as AsyncEngine
    from adjudge.engine.cluster.cluster_engine import ClusterEngine as ClusterEngine
    from adjudge.engine.completion import Completion as Completion
    from adjudge.engine.embedding import Embedding as Embedding
    from adjudge.engine.engine import Engine as Engine
    from adjudge.engine.errors import AdjudgeError as AdjudgeError
    from adjudge.engine.remote.remote_engine import RemoteEngine as RemoteEngine
    from adjudge.engine.sampling import Sampling as Sampling
    from adjudge.engine.score import Score as Score
    from adjudge.engine.text.labels import Labels as Labels
    from adjudge.engine.text.prompt import Message as Message
    from adjudge.engine.text.prompt import Prompt as Prompt
    from adjudge.engine.text.prompt import Segment as Segment
    from adjudge.engine.text.written_scores import AnswerFormat as AnswerFormat
    from adjudge.rewards.engines.specification import EngineSpec as EngineSpec
    from adjudge.rewards.engines.specification import JudgeSpec as JudgeSpec
    from adjudge.rewards.guards.guarded import Guarded as Guarded
    from adjudge.rewards.guards.length_free import LengthFree as LengthFree
    from adjudge.rewards.journal import Journal as Journal
    from adjudge.rewards.judge_rewards.judge_reward import JudgeReward as JudgeReward
    from adjudge.rewards.judge_rewards.references import DynamicReference as DynamicReference
    from adjudge.rewards.judge_rewards.references import StaticReference as StaticReference
    from adjudge.rewards.judge_rewards.story_formulas import STORY_ASPECTS as STORY_ASPECTS
    from adjudge.rewards.judge_rewards.story_formulas import ComponentWeights as ComponentWeights
    from adjudge.rewards.judge_rewards.story_reward import StoryReward as StoryReward
    from adjudge.rewards.judge_rewards.story_reward import pointwise_story_reward as pointwise_story_reward
    from adjudge.rewards.judge_rewards.tournament_reward import TournamentReward as TournamentReward
    from adjudge.rewards.judges.aspects import HANNA as HANNA
    from adjudge.rewards.judges.aspects import PERSE as PERSE
    from adjudge.rewards.judges.aspects import STORYER as STORYER
    from adjudge.rewards.judges.aspects import Aspect as Aspect
    from adjudge.rewards.judges.debate import DebateJudge as DebateJudge
    from adjudge.rewards.judges.ensemble import EnsembleVerdict as EnsembleVerdict
    from adjudge.rewards.judges.ensemble import ensemble as ensemble
    from adjudge.rewards.judges.own import OwnJudge as OwnJudge
    from adjudge.rewards.judges.pairwise import PairwiseJudge as PairwiseJudge
    from adjudge.rewards.judges.personal import PersonalJudge as PersonalJudge
    from adjudge.rewards.judges.personal import PersonalPairJudge as PersonalPairJudge
    from adjudge.rewards.judges.pointwise import PointwiseJudge as PointwiseJudge
    from adjudge.rewards.judges.pointwise import PointwisePairJudge as PointwisePairJudge
    from adjudge.rewards.judges.principle import PrincipleJudge as PrincipleJudge
    from adjudge.rewards.judges.principle import read_principles as read_principles
    from adjudge.rewards.judges.retrieval import EngineEmbedder as EngineEmbedder
    from adjudge.rewards.judges.retrieval import Index as Index
    from adjudge.rewards.judges.rubric_judge import RubricJudge as RubricJudge
    from adjudge.rewards.judges.scalar import ScalarJudge as ScalarJudge
    from adjudge.rewards.judges.tournament import Tournament as Tournament
    from adjudge.rewards.judges.tree import TreeJudge as TreeJudge
    from adjudge.rewards.parts.accuracy_reward import AccuracyReward as AccuracyReward
    from adjudge.rewards.parts.check_reward import Check as Check
    from adjudge.rewards.parts.check_reward import CheckReward as CheckReward
    from adjudge.rewards.parts.combining import Product as Product
    from adjudge.rewards.parts.combining import WeightedSum as WeightedSum
    from adjudge.rewards.parts.function_reward import FunctionReward as FunctionReward
    from adjudge.rewards.parts.gated import Gated as Gated
    from adjudge.rewards.parts.gates import FormatReward as FormatReward
    from adjudge.rewards.parts.gates import LanguageReward as LanguageReward
    from adjudge.rewards.parts.gates import LengthReward as LengthReward
    from adjudge.rewards.parts.gates import LengthWindow as LengthWindow
    from adjudge.rewards.parts.gates import PatternReward as PatternReward
    from adjudge.rewards.parts.gates import RepetitionReward as RepetitionReward
    from adjudge.rewards.parts.section_reward import SectionReward as SectionReward
    from adjudge.rewards.records.group import Group as Group
    from adjudge.rewards.records.group import GroupVerdict as GroupVerdict
    from adjudge.rewards.records.group import Outcome as Outcome
    from adjudge.rewards.records.rubric import Criterion as Criterion
    from adjudge.rewards.records.rubric import Rubric as Rubric
    from adjudge.rewards.records.rubric import read_rubric as read_rubric
    from adjudge.rewards.records.verdict import AspectVerdict as AspectVerdict
    from adjudge.rewards.records.verdict import Comparison as Comparison
    from adjudge.rewards.records.verdict import Example as Example
    from adjudge.rewards.records.verdict import Item as Item
    from adjudge.rewards.records.verdict import Pair as Pair
    from adjudge.rewards.records.verdict import PairVerdict as PairVerdict
    from adjudge.rewards.records.verdict import Part as Part
    from adjudge.rewards.records.verdict import Review as Review
    from adjudge.rewards.records.verdict import RubricVerdict as RubricVerdict
    from adjudge.rewards.records.verdict import Verdict as Verdict
    from adjudge.rewards.reward import GroupReward as GroupReward
    from adjudge.rewards.reward import Reward as Reward
    from adjudge.rewards.trainers.openrlhf import for_openrlhf as for_openrlhf
    from adjudge.rewards.trainers.slime import for_slime as for_slime
    from adjudge.rewards.trainers.slime import slime_advantages as slime_advantages
    from adjudge.rewards.trainers.verl import for_verl as for_verl
    from adjudge.rewards.trainers.verl import for_verl_batch as for_verl_batch

__version__ = "0.1.0"

_HOMES = {
    "adjudge.engine.async_engine": ("AsyncEngine",),
    "adjudge.engine.cluster.cluster_engine": ("ClusterEngine",),
    "adjudge.engine.completion": ("Completion",),
    "adjudge.engine.embedding": ("Embedding",),
    "adjudge.engine.engine": ("Engine",),
    "adjudge.engine.errors": ("AdjudgeError",),
    "adjudge.engine.remote.remote_engine": ("RemoteEngine",),
    "adjudge.engine.sampling": ("Sampling",),
    "adjudge.engine.score": ("Score",),
    "adjudge.engine.text.labels": ("Labels",),
    "adjudge.engine.text.prompt": ("Message", "Prompt", "Segment"),
    "adjudge.engine.text.written_scores": ("AnswerFormat",),
    "adjudge.rewards.engines.specification": ("EngineSpec", "JudgeSpec"),
    "adjudge.rewards.guards.guarded": ("Guarded",),
    "adjudge.rewards.guards.length_free": ("LengthFree",),
    "adjudge.rewards.journal": ("Journal",),
    "adjudge.rewards.judge_rewards.judge_reward": ("JudgeReward",),
    "adjudge.rewards.judge_rewards.references": ("DynamicReference", "StaticReference"),
    "adjudge.rewards.judge_rewards.story_formulas": ("STORY_ASPECTS", "ComponentWeights"),
    "adjudge.rewards.judge_rewards.story_reward": ("StoryReward", "pointwise_story_reward"),
    "adjudge.rewards.judge_rewards.tournament_reward": ("TournamentReward",),
    "adjudge.rewards.judges.aspects": ("HANNA", "PERSE", "STORYER", "Aspect"),
    "adjudge.rewards.judges.debate": ("DebateJudge",),
    "adjudge.rewards.judges.ensemble": ("EnsembleVerdict", "ensemble"),
    "adjudge.rewards.judges.own": ("OwnJudge",),
    "adjudge.rewards.judges.pairwise": ("PairwiseJudge",),
    "adjudge.rewards.judges.personal": ("PersonalJudge", "PersonalPairJudge"),
    "adjudge.rewards.judges.pointwise": ("PointwiseJudge", "PointwisePairJudge"),
    "adjudge.rewards.judges.principle": ("PrincipleJudge", "read_principles"),
    "adjudge.rewards.judges.retrieval": ("EngineEmbedder", "Index"),
    "adjudge.rewards.judges.rubric_judge": ("RubricJudge",),
    "adjudge.rewards.judges.scalar": ("ScalarJudge",),
    "adjudge.rewards.judges.tournament": ("Tournament",),
    "adjudge.rewards.judges.tree": ("TreeJudge",),
    "adjudge.rewards.parts.accuracy_reward": ("AccuracyReward",),
    "adjudge.rewards.parts.check_reward": ("Check", "CheckReward"),
    "adjudge.rewards.parts.combining": ("Product", "WeightedSum"),
    "adjudge.rewards.parts.function_reward": ("FunctionReward",),
    "adjudge.rewards.parts.gated": ("Gated",),
    "adjudge.rewards.parts.gates": (
        "FormatReward",
        "LanguageReward",
        "LengthReward",
        "LengthWindow",
        "PatternReward",
        "RepetitionReward",
    ),
    "adjudge.rewards.parts.section_reward": ("SectionReward",),
    "adjudge.rewards.records.group": ("Group", "GroupVerdict", "Outcome"),
    "adjudge.rewards.records.rubric": ("Criterion", "Rubric", "read_rubric"),
    "adjudge.rewards.records.verdict": (
        "AspectVerdict",
        "Comparison",
        "Example",
        "Item",
        "Pair",
        "PairVerdict",
        "Part",
        "Review",
        "RubricVerdict",
        "Verdict",
    ),
    "adjudge.rewards.reward": ("GroupReward", "Reward"),
    "adjudge.rewards.trainers.openrlhf": ("for_openrlhf",),
    "adjudge.rewards.trainers.slime": ("for_slime", "slime_advantages"),
    "adjudge.rewards.trainers.verl": ("for_verl", "for_verl_batch"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import adjudge` loads neither torch nor transformers."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'adjudge' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
