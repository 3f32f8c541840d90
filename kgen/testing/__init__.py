"""Holding kernels to what they mean: exact references, derived bounds, random cases, sweeps over every operator."""
