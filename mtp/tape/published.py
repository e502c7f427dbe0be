"""Published acceptance figures of real drafters, with their sources, and the regimes that are
put together from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AcceptanceProfile:
    survival: tuple[float, ...]  # [j]: share of chains whose first j + 1 drafts were accepted
    target: str
    task: str  # of the text it was measured on, also thinking
    thinking: bool
    source: str
    note: str

    def chain(self, depth: int) -> tuple[float, ...]:
        """Survival of `depth` drafts. Past the published ones every further draft is as likely
        as the last: an assumption."""
        known = self.survival[:depth]
        further = self.survival[-1] / self.survival[-2]
        return known + tuple(
            self.survival[-1] * further**place for place in range(1, depth - len(known) + 1)
        )


PROFILES: dict[str, AcceptanceProfile] = {
    "flash-next-code": AcceptanceProfile(
        (0.91, 0.85, 0.76),
        "Qwen3.8-Flash-Next",
        "code",
        False,
        "vcruz305 EXL3 recipe HISTORICAL_BENCHMARKS",
        "caption says conditional but its own counts show cumulative",
    ),
    "flash-next-story": AcceptanceProfile(
        (0.68, 0.38, 0.2),
        "Qwen3.8-Flash-Next",
        "story",
        False,
        "vcruz305 EXL3 recipe HISTORICAL_BENCHMARKS",
        "cumulative (as above)",
    ),
    "flash-next-essay": AcceptanceProfile(
        (0.65, 0.38, 0.17),
        "Qwen3.8-Flash-Next",
        "essay",
        False,
        "vcruz305 EXL3 recipe HISTORICAL_BENCHMARKS",
        "cumulative (as above)",
    ),
    "flash-next-mixed": AcceptanceProfile(
        (0.88, 0.73, 0.62),
        "Qwen3.8-Flash-Next",
        "mixed",
        False,
        "vcruz305 EXL3 recipe HISTORICAL_BENCHMARKS",
        "k=3",
    ),
    "flash-next-prose-mlx": AcceptanceProfile(
        (0.74, 0.48, 0.29),
        "Qwen3.8-Flash-Next",
        "prose",
        False,
        "jundot/omlx #3352",
        "from conditionals",
    ),
    "qwen38-27b-code": AcceptanceProfile(
        (0.9, 0.78, 0.6),
        "Qwen3.8-27B",
        "code",
        False,
        "SemiAnalysisAI/InferenceX #3304",
        "from AL differences across separate runs",
    ),
    "qwen38-27b-code-think": AcceptanceProfile(
        (0.73, 0.48, 0.31),
        "Qwen3.8-27B",
        "code",
        True,
        "SemiAnalysisAI/InferenceX #3304",
        "from AL differences across separate runs",
    ),
    "qwen35-397b-code": AcceptanceProfile(
        (0.92, 0.78, 0.63),
        "Qwen3.5-397B",
        "code",
        False,
        "SemiAnalysisAI/InferenceX golden AL",
        "from AL differences across separate runs",
    ),
    "qwen35-397b-code-think": AcceptanceProfile(
        (0.93, 0.8, 0.66),
        "Qwen3.5-397B",
        "code",
        True,
        "SemiAnalysisAI/InferenceX golden AL",
        "from AL differences across separate runs",
    ),
    "deepseek-v4-pro-code": AcceptanceProfile(
        (0.92, 0.69, 0.36),
        "DeepSeek-V4-Pro",
        "code",
        False,
        "SemiAnalysisAI/InferenceX golden AL",
        "from AL differences across separate runs",
    ),
    "deepseek-v4-pro-code-think": AcceptanceProfile(
        (0.79, 0.48, 0.22),
        "DeepSeek-V4-Pro",
        "code",
        True,
        "SemiAnalysisAI/InferenceX golden AL",
        "from AL differences across separate runs",
    ),
    "glm-52-code": AcceptanceProfile(
        (0.84, 0.66, 0.49),
        "GLM-5.2",
        "code",
        True,
        "SemiAnalysisAI/InferenceX golden AL",
        "from AL differences across separate runs",
    ),
    "glm-5-a": AcceptanceProfile(
        (0.94, 0.77, 0.57),
        "GLM-5 W4A8",
        "mixed",
        False,
        "vllm-project/vllm-ascend #9803",
        "service logs",
    ),
    "glm-5-b": AcceptanceProfile(
        (0.88, 0.75, 0.61),
        "GLM-5 W4A8",
        "mixed",
        False,
        "vllm-project/vllm-ascend #9803",
        "service logs",
    ),
}


@dataclass(frozen=True)
class Stretch:
    """A stretch of text like one profile; tokens: its mean length (geometric)."""

    profile: str
    tokens: float


@dataclass(frozen=True)
class Regime:
    """A text goes round its parts; whole: each text is of one part only, drawn by the parts'
    lengths."""

    stretches: tuple[Stretch, ...]
    whole: bool = False


CODE, PROSE, THINK = "flash-next-code", "flash-next-prose-mlx", "qwen38-27b-code-think"
ALL_OF_IT = 1e9  # tokens

REGIMES: dict[str, Regime] = {
    "code": Regime((Stretch(CODE, ALL_OF_IT),)),
    "prose": Regime((Stretch(PROSE, ALL_OF_IT),)),
    "chat": Regime((Stretch("glm-5-b", ALL_OF_IT),)),  # service logs
    "think": Regime((Stretch(THINK, ALL_OF_IT),)),
    # a request is one or the other
    "mixed": Regime((Stretch(CODE, 1), Stretch(PROSE, 1)), whole=True),
    "switch": Regime((Stretch(CODE, 64), Stretch(PROSE, 64))),  # prose with code blocks
    # short stretches that are nearly copied
    "bursty": Regime((Stretch(PROSE, 48), Stretch("glm-5-a", 12))),
    # thought, a tool call, a remark
    "agentic": Regime((Stretch(THINK, 120), Stretch(CODE, 30), Stretch("flash-next-story", 20))),
}


def regime_of(name: str) -> Regime:
    """A regime, or one of the profiles throughout. Raises ValueError for another name."""
    if name in PROFILES:
        return Regime((Stretch(name, ALL_OF_IT),))
    if name not in REGIMES:
        raise ValueError(f"regime is {name!r}, expected one of {', '.join([*REGIMES, *PROFILES])}")
    return REGIMES[name]
