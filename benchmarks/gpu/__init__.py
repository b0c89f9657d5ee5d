"""Trials of vLLM on a GPU: does it keep callers apart, how does it fail, how fast is it.

`python -m benchmarks.gpu --help`. Rehearse on the CPU lane (scripts/engine), then run on the GPU.
"""
