"""`adjudge bench`: what is measured on this machine."""

from __future__ import annotations

from adjudge.commands.lazy import Commands

bench = Commands(
    help="Measure speed (judge, grpo, kernels, ...), and how good a judge is (agreement, disturbances, ...).",
    no_args_is_help=True,
)
bench.add_lazily(
    {
        "agreement": (
            "bench_agreement:bench_agreement",
            "Judge texts that people have rated, and say how far the judge agrees with them.",
        ),
        "judge": (
            "bench_speed:bench_judge",
            "Time the same pairs through adjudge and through its peers, and compare their answers.",
        ),
        "probe": (
            "bench_disturbances:bench_probe",
            "Try to fool a judge: empty, repeated, copied and padded texts, and instructions to the judge inside"
            " texts.",
        ),
        "tree": (
            "bench_tree:bench_tree",
            "Analyse a tree judge as Tree of Writing does, beside the paper's own figures.",
        ),
        "grpo": (
            "bench_speed:bench_grpo",
            "Time GRPO steps by phase (generate, reward, update) for each way to have completions judged.",
        ),
        "kernels": (
            "bench_speed:bench_kernels",
            "Check the kernels against float64, then time them beside their peers and the limits of this machine.",
        ),
        "compile": (
            "bench_speed:bench_compile",
            "Compile every Triton kernel for GPUs that are not here: registers, spilled bytes, shared memory.",
        ),
        "confidence": (
            "bench_speed:bench_confidence",
            "Time EvolvR's confidence filter beside scoring by generation: one token, and the 20 likeliest in its"
            " place.",
        ),
        "disturbances": (
            "bench_disturbances:bench_disturbances",
            "Tell whether a judge scores stories lower for being made worse, and texts that only try to buy a score.",
        ),
        "personal-studies": (
            "bench_personal:bench_personal",
            "Ask for unseen readers' scores (or choices) after k = 0 to 5 of their reviews, and hold them against"
            " theirs.",
        ),
        "policy": (
            "bench_policy:bench_policy",
            "Have policies write to held-out prompts, and judge how often they beat their base model and people.",
        ),
    }
)
