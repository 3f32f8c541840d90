"""GELU in CUDA, built by NVRTC through torch."""

import torch

SOURCE = r"""
extern "C" __global__ void gelu_kernel(const float* x, float* y, unsigned low, int high) {
    const long long n = (long long)(high) << 32 | low;
    const long long i = (long long)(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * (0.5f * erfcf(-x[i] * 0.70710678f));
}
"""
_built = []


def forward(x):
    if x.dtype != torch.float32:
        raise TypeError("float32 alone")
    x = x.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        if not _built:
            _built.append(torch.cuda._compile_kernel(SOURCE, "gelu_kernel"))
        _built[0]((-(-x.numel() // 256), 1, 1), (256, 1, 1), (x, y, x.numel() & 0xFFFFFFFF, x.numel() >> 32))  # torch passes int32
    return y
