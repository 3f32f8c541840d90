"""Windows forward and backward beside torch's function and torch.compile: fraction of a copy of the least bytes."""
import os, sys, time, subprocess, warnings
warnings.filterwarnings("ignore")
START = time.time()
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/windows-inductor")
import torch, torch.nn.functional as F
import kgen
from kgen import grad
from kgen.bench import libraries, timing
from kgen.runtime.kernel import Kernel
timing.SECONDS = 0.06
LIMIT = float(os.environ.get("LIMIT", "85"))

def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

def conv(x, w, b):
    y = F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=w.shape[0])
    return F.silu(y)

def lap(x):
    p = F.pad(x, (1, 1, 1, 1))
    return p[..., 2:, 1:-1] + p[..., :-2, 1:-1] + p[..., 1:-1, 2:] + p[..., 1:-1, :-2] - 4 * x

BOX = """# Box.
box(x: T[..., H, W]) -> y: T[..., H, W] where I = 3, J = 3

y = mean[I, J](x[H = index[H] + index[I] - 1, W = index[W] + index[J] - 1 else 0])
"""
open("/tmp/windows_box.k", "w").write(BOX)
SCALE = float(os.environ.get("SCALE", "1"))
B = lambda n: max(1, int(n * SCALE))
# name: spec, shapes, torch's function, dtypes, whether backward too
CASES = {
    "mp1d": ("kernelbench/41_max_pool1d", [(B(2048), 65536)], lambda x: F.max_pool1d(x, 8, 1, 4, 3), 1),
    "mp2d": ("kernelbench/42_max_pool2d", [(B(16), 32, 512, 512)], lambda x: F.max_pool2d(x, 4, 1, 1), 1),
    "mp3d": ("kernelbench/43_max_pool3d", [(2, B(32), 128, 128, 128)], lambda x: F.max_pool3d(x, 3, 2, 1, 3), 1),
    "ap1d": ("kernelbench/44_avg_pool1d", [(B(2048), 65536)], lambda x: F.avg_pool1d(x, 8, 1, 4), 1),
    "ap2d": ("kernelbench/45_avg_pool2d", [(B(32), 2048, 2048)], lambda x: F.avg_pool2d(x[None], 11)[0], 1),
    "ap3d": ("kernelbench/46_avg_pool3d", [(1, B(32), 128, 128, 256)], lambda x: F.avg_pool3d(x, 3, 2, 1), 1),
    "mp2s2": ("max_pool2d", [(B(128), 64, 128, 128)], lambda x: F.max_pool2d(x, 3, 2, 1), 1),
    "ap2s2": ("avg_pool2d", [(B(128), 64, 128, 128)], lambda x: F.avg_pool2d(x, 3, 2, 1), 1),
    "box": ("/tmp/windows_box.k", [(B(64), 1024, 2048)], lambda x: F.avg_pool2d(x[None], 3, 1, 1)[0], 1),
    "laplacian": ("laplacian", [(B(64), 1024, 2048)], lap, 1),
    "conv4": ("causal_conv4", [(B(16), 2048, 4096), (2048, 4), (2048,)], conv, 1),
    "rope": ("rope", [(B(128), 8192, 128), (8192, 64), (8192, 64)], rotate, 1),
}
dev = "cuda" if torch.cuda.is_available() else "cpu"
TARGET = None if dev == "cuda" else "cpp"

def timed(runs):
    return {k: v[0] for k, v in timing.spreads_ms(runs, dev).items()}

def prepare(name, dtype, compile_only=False):
    spec, shapes, torch_f, back = CASES[name]
    torch.manual_seed(0)
    given = [torch.randn(s, device=dev).to(dtype) for s in shapes]
    return spec, given, torch_f

def one(name, dtype, peers=True):
    spec, given, f = prepare(name, dtype)
    t0 = time.time()
    k = kgen.load(spec)
    y = k(*given, target=TARGET) if TARGET else k(*given)
    first = time.time() - t0
    want = f(*given)
    bad = ""
    tol = 1e-4 if dtype == torch.float32 else 2e-2
    if y.shape != want.shape: bad = f" SHAPE {tuple(y.shape)} {tuple(want.shape)}"
    else:
        err = ((y.float() - want.float()).abs().max() / want.float().abs().max()).item()
        if not err < tol: bad = f" WRONG {err:.2g}"
    moved = sum(t.numel() * t.element_size() for t in (*given, y))
    runs = {"kgen": (lambda: k(*given, target="cuda")) if dev == "cuda" else (lambda: k(*given, target="cpp"))}
    if dev == "cuda" and os.environ.get("TRITON"): runs["triton"] = lambda: k(*given, target="triton")
    if peers:
        runs["eager"] = lambda: f(*given)
        c = libraries.compiled(f)
        try:
            c(*given); runs["compile"] = lambda: c(*given)
        except Exception as e: bad += " compile: " + str(e)[:40]
    runs["copy"] = timing.copying(moved, dev)
    t = timed(runs)
    print(f"{name:10}{str(dtype)[6:]:10}fwd  copy {t['copy']:.3f} ms  " + "  ".join(f"{n} {t[n]:.3f} ({t['copy'] / t[n]:.2f})" for n in t if n != "copy") + bad, f"[{first:.1f}s]", flush=True)
    del y
    if not CASES[name][3]: return
    try:
        made = grad.backward(k.kernel, save=False)
        b = Kernel(made.kernel)
        dy = torch.randn_like(want)
        leaves = [g.clone().requires_grad_() for g in given]
        out = f(*leaves)
        wanted = dict(zip((p.name for p in k.kernel.params), torch.autograd.grad(out, leaves, dy, retain_graph=True)))
        have = dict(zip((p.name for p in k.kernel.params), given))
        r = k.kernel.results[0].name
        args = {p.name: (dy if p.name == f"d{r}" else have[p.name]) for p in made.kernel.params if p.is_tensor}
        t0 = time.time()
        got = b(**args, target="cuda" if dev == "cuda" else "cpp")
        first = time.time() - t0
        got = got if isinstance(got, tuple) else (got,)
        bad = ""
        for res, g in zip(made.kernel.results, got):
            w = wanted[res.name[1:]]
            err = ((g.float() - w.float()).abs().max() / w.float().abs().max()).item()
            if not err < (1e-3 if dtype == torch.float32 else 3e-2): bad += f" WRONG {res.name} {err:.2g}"
        moved = sum(t.numel() * t.element_size() for t in (*args.values(), *got))
        runs = {"kgen": lambda: b(**args, target="cuda" if dev == "cuda" else "cpp")}
        if peers:
            runs["eager"] = lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)
            c = libraries.compiled(f)
            try:
                out2 = c(*leaves); runs["compile"] = lambda: torch.autograd.grad(out2, leaves, dy, retain_graph=True)
                runs["compile"]()
            except Exception as e: bad += " compile: " + str(e)[:40]; runs.pop("compile", None)
        runs["copy"] = timing.copying(moved, dev)
        t = timed(runs)
        print(f"{'':10}{'':10}bwd  copy {t['copy']:.3f} ms  " + "  ".join(f"{n} {t[n]:.3f} ({t['copy'] / t[n]:.2f})" for n in t if n != "copy") + bad, f"[{first:.1f}s]", flush=True)
    except Exception as e:
        print(f"{name} backward: {type(e).__name__} {str(e)[:300]}", flush=True)

def warm(job):
    """Compile for one case, in a process of its own, into the caches."""
    name, dtype = job.split(":")
    global SCALE
    spec, given, f = prepare(name, getattr(torch, dtype))
    given = [g.requires_grad_() for g in given]
    k = kgen.load(spec)
    try:
        y = k(*[g.detach() for g in given])
        made = grad.backward(k.kernel, save=False)
        b = Kernel(made.kernel); r = k.kernel.results[0].name
        have = dict(zip((p.name for p in k.kernel.params), [g.detach() for g in given]))
        b(**{p.name: (torch.randn_like(y) if p.name == f"d{r}" else have[p.name]) for p in made.kernel.params if p.is_tensor})
    except Exception as e: print("warm", name, str(e)[:200], flush=True)
    c = libraries.compiled(f)
    try:
        out = c(*given); torch.autograd.grad(out, given, torch.randn_like(out))
        c = libraries.compiled(f); c(*[g.detach() for g in given])
    except Exception as e: print("warm compile", name, str(e)[:100], flush=True)
    torch.cuda.synchronize() if dev == "cuda" else None

if __name__ == "__main__":
    if sys.argv[1:2] == ["warm"]:
        warm(sys.argv[2]); sys.exit(0)
    jobs = [a for a in sys.argv[1:]] or ([f"{n}:float32" for n in list(CASES)[:6]] + [f"{n}:bfloat16" for n in ("mp2s2", "ap2s2", "box", "laplacian", "conv4", "rope", "mp2d")])
    procs, todo = [], list(jobs)
    while (todo or procs) and time.time() - START < LIMIT * .55 and dev == "cuda":
        procs = [p for p in procs if p.poll() is None]
        while todo and len(procs) < 7:
            procs.append(subprocess.Popen([sys.executable, __file__, "warm", todo.pop(0)]))
        time.sleep(.2)
    for p in procs: p.kill()
    print(f"warm after {time.time() - START:.0f} s", flush=True)
    for j in jobs:
        if time.time() - START > LIMIT: print("out of time:", j); break
        n, d = j.split(":")
        try: one(n, getattr(torch, d))
        except Exception as e: print(j, type(e).__name__, str(e)[:300], flush=True)
        torch.cuda.empty_cache() if dev == "cuda" else None
