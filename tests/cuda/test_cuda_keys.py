"""Orders and counts of keys by blocks, run on the CPU by emulation: held to torch's stable sort, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kgen.backends.cuda_layouts import PARTS
from kgen.runtime import keys, sorts
from tests.cuda.emulated import EmulatedOrders, Emulated, kernels, started
from tests.segments.row_keys import CASES, close, drawn
