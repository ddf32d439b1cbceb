"""Parts of the demo, in the order in which they run.

A part is a function from a `Setting` to an `Outcome`. To add one, write a module
beside this file and name its function in `PARTS`.
"""

from collections.abc import Callable

from demo_parts import chargpt, compiled, digits, sparse
from demo_parts.outcome import Outcome, Setting

PARTS: dict[str, Callable[[Setting], Outcome]] = {
    "digits": digits.run,
    "chargpt": chargpt.run,
    "compiled": compiled.run,
    "sparse": sparse.run,
}
