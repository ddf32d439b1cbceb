"""From ATen graphs to StableHLO. Knows graphs and numbers, no runtime and no device."""
