"""The version of kgen, which emitted files name."""

__version__ = "0.1.0"
