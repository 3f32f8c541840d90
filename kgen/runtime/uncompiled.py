"""What torch.compile does not look into: it breaks the graph there, and goes on behind it.

In a module of its own, which only compiled code imports: to say so loads torch._dynamo.
"""

from __future__ import annotations

import torch

from kgen.runtime import foreach as lists

foreach = torch.compiler.disable(lists.call, reason="kgen: foreach launches by itself, outside of compiled graphs")
