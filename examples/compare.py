"""Compare two stories in ten lines of Python."""

from adjudge import Engine, Pair, PointwisePairJudge

engine = Engine("house")
judge = PointwisePairJudge(engine)
pair = Pair(
    prompt="Write about a lighthouse keeper.",
    a="The lamp had been dark a year when the first moth came back, and Ines let it in.",
    b="There was a lighthouse keeper. He kept the lighthouse. It was a lighthouse.",
)
[verdict] = judge.compare([pair])
print(f"a is better with probability {verdict.preference:.3f}")
for name, aspect in verdict.aspects.items():
    print(f"{name:10} a {aspect.score_a:.2f}  b {aspect.score_b:.2f}")
print(f"{engine.stats.prompt_tokens} tokens asked for, {engine.stats.tokens_computed} computed")
