"""Speed, measured: a kernel's targets beside eager PyTorch, torch.compile and a copy, in one run."""
