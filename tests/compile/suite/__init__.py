"""The model suite: architectures in reduced configurations, as rows, and how one is compared."""

from compile.suite.media import AUDIO, MULTIMODAL, VISION
from compile.suite.own import OWN
from compile.suite.row import Row
from compile.suite.sparse_and_state import EXPERTS, STATES
from compile.suite.text import DECODERS, ENCODERS, PAIRS

SUITE: dict[str, Row] = {
    **DECODERS, **ENCODERS, **PAIRS, **EXPERTS, **STATES, **VISION, **AUDIO, **MULTIMODAL, **OWN,
}  # fmt: skip
