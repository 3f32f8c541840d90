"""What verify found of torch's, Liger's and QuACK's kernels on a GPU, in plain calls: what each gives, beside what it is to give.

    python -m tests.verify.reproduced        of what is installed, each in a process of its own
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

#: By name: the package that it takes, and a program that prints what comes and what is to come.
PROGRAMS = {
    "torch: layer_norm of more than 2^32 elements": ("torch", """
x = torch.randn(61, 1024, device="cuda", dtype=torch.half).repeat(68760, 1)
y = F.layer_norm(x, (1024,))
print((y[-1] == F.layer_norm(x[-1:], (1024,))[0]).sum().item(), "of 1024 elements of the last row, which has", x.numel(), "before its end")
"""),
    "torch: cummax of more than 2^31 elements": ("torch", """
x = torch.randn(61, 1024, device="cuda", dtype=torch.half).repeat(34400, 1)
y = torch.cummax(x, -1).values
print((y[-1] == torch.cummax(x[-1:], -1).values[0]).sum().item(), "of 1024 elements of the last row")
"""),
    "torch: rms_norm of an infinity": ("torch", """
x = torch.tensor([[1.0, float("inf")]])
print(F.rms_norm(x.cuda(), (2,)).tolist(), "on a CPU", F.rms_norm(x, (2,)).tolist())
"""),
    "torch: hardsigmoid and hardswish of float64": ("torch", """
x = torch.tensor([-0.5], device="cuda", dtype=torch.double)
print(F.hardsigmoid(x).item(), "is to be", 2.5 / 6, "and", F.hardswish(x).item(), -0.5 * 2.5 / 6)
"""),
    "Liger: relu_squared of NaN": ("liger_kernel", """
from liger_kernel.ops import LigerReLUSquaredFunction as f
print(f.apply(torch.full((1, 8), float("nan"), device="cuda")).tolist(), "is to be NaN")
"""),
    "Liger: cross_entropy and its logits": ("liger_kernel", """
from liger_kernel.ops import LigerCrossEntropyFunction as f
x = torch.ones(2, 8, device="cuda")
f.apply(x, torch.tensor([1, -100], device="cuda"), None, -100, 0.0, 0.0, "none")
print(x.tolist(), "is to be all ones")
"""),
    "Liger: rms_norm by a weight of -0": ("liger_kernel", """
from liger_kernel.ops import LigerRMSNormFunction as f
print(f.apply(torch.ones(1, 8, device="cuda"), -torch.zeros(8, device="cuda"), 1e-6, 0.0, "llama", False).tolist(), "is to be -0")
"""),
    "QuACK: softmax above 2.36e38": ("quack", """
from quack.softmax import softmax_fwd
x = torch.zeros(1, 64, device="cuda")
x[0, 0] = 3e38
print(softmax_fwd(x)[0, :3].tolist(), "is to be", torch.softmax(x, -1)[0, :3].tolist())
"""),
}  # fmt: skip


def main() -> None:
    """Run each program whose package is there."""
    for name, (package, text) in PROGRAMS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name}: {package} is not installed")
            continue
        program = "import torch\nimport torch.nn.functional as F\ntorch.set_grad_enabled(False)\n" + text + "torch.cuda.synchronize()\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, errors="replace")
        said = done.stdout.strip() or next((w for w in reversed(done.stderr.splitlines()) if "Error" in w), "it said nothing")
        print(f"{name}: {said[:300]}", flush=True)


if __name__ == "__main__":
    main()
