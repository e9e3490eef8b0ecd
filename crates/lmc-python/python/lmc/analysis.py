"""The result of `lmc.analyze`: the object that `lmc analyze --json` prints, as types for checkers.

Each is a plain dict, so that it equals the parsed output of the command, can be saved with `json.dump`, and has the
fields of later versions. docs/json.md says what the fields mean; sizes are in bytes, entropies in bits an
element. A kind is "weights", "embedding", "norm", "master", "exp_avg", "exp_avg_sq" or "other".
"""

from typing import Literal, TypedDict


class Figures(TypedDict):
    """Of the elements of one or more tensors."""

    tensors: int
    elements: int
    raw_size: int
    lmc_size: int
    element_bits: float
    lmc_bits: float
    sign_entropy: float
    exponent_entropy: float
    mantissa_entropy: float
    zeros: int
    not_finite: int
    distinct_exponents: int


class Group(Figures):
    """Of the kind or dtype `name`."""

    name: str


class Checkpoint(TypedDict):
    """A checkpoint."""

    name: str
    step: int
    metadata: dict[str, str]
    files: list[str]
    formats: list[str]
    all: Figures
    kinds: list[Group]
    dtypes: list[Group]


class GroupMagnitudes(TypedDict):
    """How many floats of one kind and dtype have a magnitude from 2**e to below 2**(e + 1), e = `lowest` and on."""

    kind: str
    dtype: str
    lowest: int
    counts: list[int]


class Change(TypedDict):
    """The changes of the elements of one or more tensors."""

    tensors: int
    unchanged_tensors: int
    raw_size: int
    delta_size: int
    lmc_size: int
    compared: int
    changed: int
    distances: list[int]
    largest_distance: int


class GroupChange(Change):
    """Of one kind and dtype."""

    kind: str
    dtype: str
    flips: list[int]


class Metric(TypedDict):
    """A number that was recorded during training: its values at steps, and which of them stand out."""

    name: str
    points: list[tuple[int, float]]
    spikes: list[int]


class Course(TypedDict):
    """How floats moved: `norm` and `rms` for each checkpoint, the others for each pair."""

    norm: list[float | None]
    rms: list[float | None]
    update_norm: list[float | None]
    update_rms: list[float | None]
    ratio: list[float | None]
    cosine: list[float | None]
    changed: list[float | None]
    spikes: list[int]


class GroupCourse(Course):
    """Of the kind or layer `name`."""

    name: str


# `from` is a keyword.
Pair = TypedDict(
    "Pair",
    {
        "from": int,
        "to": int,
        "steps": int,
        "all": Change,
        "groups": list[GroupChange],
        "missing_tensors": int,
        "missing_names": list[str],
        "new_tensors": int,
        "new_names": list[str],
    },
)


class GroupDelta(TypedDict):
    """The size of a kind and dtype in one or more deltas."""

    kind: str
    dtype: str
    raw_size: int
    delta_size: int


class FloatDelta(TypedDict):
    """The floats in one or more deltas that have counterparts, and the entropy of their differences."""

    raw_size: int
    delta_size: int
    entropy_size: int


Delta = TypedDict(
    "Delta",
    {
        "from": int,
        "to": int,
        "steps": int,
        "raw_size": int,
        "delta_size": int,
        "groups": list[GroupDelta],
        "floats": FloatDelta,
    },
)


class Distance(TypedDict):
    """All deltas over one distance in steps."""

    steps: int
    deltas: int
    raw_size: int
    delta_size: int
    groups: list[GroupDelta]
    floats: FloatDelta


class TensorChange(TypedDict):
    """The changes of a tensor in all pairs together."""

    pairs: int
    unchanged_pairs: int
    compared: int
    changed: int
    flips: list[int]
    distances: list[int]
    delta_size: int
    raw_size: int


class Tensor(Figures):
    """A tensor of the last checkpoint."""

    file: int
    name: str
    kind: str
    dtype: str
    shape: list[int]
    distinct_values: int | None
    fits: str | None
    quantised: str | None
    quantised_part: float
    duplicate_of: int | None
    change: TensorChange | None
    course: Course


class Engine(TypedDict):
    """One compressor on one arrangement of the bytes."""

    name: str
    order: Literal["as is", "grouped"]
    given: Literal["nothing", "xor", "base"]
    raw_size: int
    size: int
    compress_of_memcpy: float
    decompress_of_memcpy: float
    compress_spread: float | None
    decompress_spread: float | None


class EngineDistance(TypedDict):
    """Deltas of samples over one distance in steps, added up."""

    steps: int
    deltas: int
    raw_size: int
    lmc_size: int
    entropy_size: int | None
    xor_size: int
    xor_grouped_size: int | None


class Engines(TypedDict):
    """Compressors beside each other, on a sample."""

    of: str
    sample_size: int
    pieces: int
    engines: list[Engine]
    xor_by: str
    distances: list[EngineDistance]


class Analysis(TypedDict):
    """The findings in one checkpoint, or in several in order."""

    version: int
    program: str
    level: str
    steps_from: Literal["store", "names", "places"]
    checkpoints: list[Checkpoint]
    pairs: list[Pair]
    deltas: list[Delta]
    distances: list[Distance]
    changes: list[GroupChange]
    metrics: list[Metric]
    kinds: list[GroupCourse]
    layers: list[GroupCourse]
    magnitudes: list[GroupMagnitudes]
    tensors: list[Tensor]
    tensors_left_out: int
    engines: Engines | None
    advice: list[str]
