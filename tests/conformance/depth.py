"""How much of a case is run: one sample in `make test`, up to 30 in `make conformance`."""

from dataclasses import dataclass

MAX_SAMPLES = 30


@dataclass(frozen=True, slots=True)
class Depth:
    """A bound for each kind of repetition.

    Attributes:
        samples: Stop after so many samples that CPU accepts.
        layouts: Layouts tried on each sample.
        out_styles: Styles of `out=` tried on each sample.
    """

    samples: int
    layouts: int
    out_styles: int

    @property
    def full(self) -> bool:
        """True for the depth of `make conformance`."""
        return self.samples == MAX_SAMPLES


QUICK = Depth(samples=1, layouts=1, out_styles=1)
FULL = Depth(samples=MAX_SAMPLES, layouts=99, out_styles=99)
