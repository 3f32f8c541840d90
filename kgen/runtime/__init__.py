"""Running kernels: binding arguments, building, caching, launching."""
