"""vLLM plugin: no page's rows ever reach another page's prompt.

Runs inside vLLM's processes, loaded through the entry point `vllm.general_plugins` from a folder on
PYTHONPATH, so it is one file that imports nothing of this package. It sets import hooks only: torch
and the model code are loaded when vLLM loads them, and patched right then.

What it does, each with one line on stderr, `hunyuan_ocr_plugin: patched <what>`:

encoder split
    The Transformers backend (0.29 to 0.33) cuts a batch's encoder output by patch counts, although
    this model yields (h/m)*(w/m+1)+2 rows an image (m: merge size): every image but the first gets
    a neighbour's rows. The cut is given the row counts.
image positions
    The native model (0.12 to 0.28) looks for images at every image-start token of the prompt, also
    those a caller typed, and dies of the first one too many. Images are found where they are.
row guard
    Whatever the version: after each step's encoder run, the rows stored for an image must be as
    many as its placeholder tokens. If not, the step raises and the engine ends: failing closed.

`python vllm_plugin.py install DIR` copies this file and its distribution metadata into DIR.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "hunyuan_ocr_plugin"
VERSION = "1.0"
MARK = f"_{NAME}_patched"

Patch = Callable[[Any], str | None]  # takes the module, returns what it patched


class LeakError(RuntimeError):
    """Encoder rows and placeholder tokens differ: some image would carry another image's rows."""


# --- encoder split: the Transformers backend -----------------------------------------------------


def rows_per_image(grid: Sequence[Sequence[int]], merge: int) -> list[int]:
    """Encoder rows of each image; `grid` holds (t, h, w) in patches.

    One row a merged patch, one a line for its newline, one each for begin and end.
    """
    return [(int(h) // merge) * (int(w) // merge + 1) + 2 for _, h, w in grid]


def _is_hunyuan(mixin: Any) -> bool:
    return getattr(mixin.model.config, "model_type", "") == "hunyuan_vl"


def _row_counts(mixin: Any, grid: Any) -> Any:
    import torch

    merge = int(mixin.model.config.vision_config.spatial_merge_size)
    return torch.tensor(rows_per_image(grid.reshape(-1, 3).tolist(), merge))


def patch_split(module: Any) -> str:
    mixin = module.MultiModalMixin
    split = mixin._split_embeddings

    @functools.wraps(split)
    def split_embeddings(self: Any, embeddings: Any, split_sizes: list[int]) -> Any:
        if _is_hunyuan(self):
            rows = embeddings.numel() // embeddings.shape[-1]
            if rows != sum(split_sizes):  # the original pads or truncates, and only warns
                raise LeakError(f"{NAME}: encoder gave {rows} rows, images want {split_sizes}")
        return split(self, embeddings, split_sizes)

    if hasattr(mixin, "_process_vision_input"):  # from 0.32
        vision = mixin._process_vision_input

        @functools.wraps(vision)
        def process_vision(self: Any, modality: str, pixels: Any, counts: Any, **rest: Any) -> Any:
            if modality == "image" and _is_hunyuan(self):
                counts = _row_counts(self, rest["image_grid_thw"])
            return vision(self, modality, pixels, counts, **rest)

        mixin._process_vision_input = process_vision
    else:
        image = mixin._process_image_input

        @functools.wraps(image)
        def process_image(self: Any, **inputs: Any) -> Any:
            grid = inputs.get("image_grid_thw")
            if "num_image_patches" in inputs and grid is not None and _is_hunyuan(self):
                inputs["num_image_patches"] = _row_counts(self, grid)
            return image(self, **inputs)

        mixin._process_image_input = process_image
    mixin._split_embeddings = split_embeddings
    return "encoder split"


# --- image positions: the native model -----------------------------------------------------------


def _first_placeholder(feature: Any) -> int:
    """Index in the prompt of the first token that an encoder row replaces."""
    position = feature.mm_position
    mask = position.is_embed
    return int(position.offset) + (int(mask.nonzero()[0]) if mask is not None else 0)


def image_positions(self: Any, input_tokens: Sequence[int], mm_features: Sequence[Any]) -> Any:
    """XD-RoPE positions (axes, tokens): [index,] column, row, image.

    As the native model computes them, with the images taken from `mm_features` and not from the
    tokens. The grid begins one past the first placeholder, which is the image's begin row.
    """
    import torch

    merge = int(self.config.vision_config.spatial_merge_size)
    axes = len(self.config.rope_scaling["xdrope_section"])
    positions = torch.arange(len(input_tokens)).repeat(4, 1)
    for index, feature in enumerate(sorted(mm_features, key=_first_placeholder)):
        _, patch_rows, patch_columns = feature.data["image_grid_thw"].data.tolist()
        height, width = int(patch_rows) // merge, int(patch_columns) // merge + 1
        begin = _first_placeholder(feature) + 1
        end = begin + height * width
        positions[1, begin:end] = torch.arange(width).repeat(height)
        positions[2, begin:end] = torch.arange(height).repeat_interleave(width)
        positions[3, begin:end] = index
    return positions[4 - axes :]


def patch_positions(module: Any) -> str | None:
    model = module.HunYuanVLForConditionalGeneration
    original = getattr(model, "get_xdrope_input_positions", None)
    if original is None:
        return None
    if list(inspect.signature(original).parameters) != ["self", "input_tokens", "mm_features"]:
        return None  # the first releases pass other arguments; the sidecar neutralises the tokens
    model.get_xdrope_input_positions = image_positions
    return "image positions"


# --- row guard: any model, any version -----------------------------------------------------------


def check_rows(feature: Any, output: Any) -> None:
    """One image's encoder rows against its placeholder tokens.

    Raises:
        LeakError: they differ.
    """
    rows, wanted = int(output.shape[0]), int(feature.mm_position.get_num_embeds())
    if rows != wanted:
        raise LeakError(f"{NAME}: {rows} encoder rows for {wanted} placeholder tokens")


def _check_scheduled(scheduled: dict[str, list[int]], features_of: Callable[[str], Any],
                     outputs: dict[str, Any]) -> None:  # fmt: skip
    for request, indices in scheduled.items():
        for index in indices:
            feature = features_of(request)[index]
            if (output := outputs.get(feature.identifier)) is not None:
                check_rows(feature, output)


def _wrap(owner: Any, method: str, check: Callable[..., None]) -> None:
    """Have `check(self, *args)` run after `owner.method`, which must exist: no guard, no engine."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        check(self, *args, **kwargs)
        return result

    setattr(owner, method, guarded)


def patch_runner(module: Any) -> str:
    """The first model runner: `_execute_mm_encoder(scheduler_output)` fills `encoder_cache`."""

    def check(self: Any, scheduler_output: Any) -> None:
        _check_scheduled(
            scheduler_output.scheduled_encoder_inputs,
            lambda request: self.requests[request].mm_features,
            self.encoder_cache,
        )

    _wrap(module.GPUModelRunner, "_execute_mm_encoder", check)
    return "row guard"


def patch_second_runner(module: Any) -> str:
    """The second model runner: rows are gathered a step at a time from its encoder cache."""

    def check(self: Any, req_ids: Sequence[str], *_: Any, **__: Any) -> None:
        cache = self.encoder_cache
        scheduled = {request: list(range(len(cache.mm_features[request]))) for request in req_ids}
        _check_scheduled(scheduled, cache.mm_features.__getitem__, cache.encoder_outputs)

    _wrap(module.EncoderRunner, "gather_mm_embeddings", check)
    return "row guard (second runner)"


# --- hooks ---------------------------------------------------------------------------------------

TARGETS: dict[str, Patch] = {
    "vllm.model_executor.models.transformers.multimodal": patch_split,
    "vllm.model_executor.models.hunyuan_vision": patch_positions,
    "vllm.v1.worker.gpu_model_runner": patch_runner,
    "vllm.v1.worker.gpu.mm.encoder_runner": patch_second_runner,
}


def apply(module: ModuleType, patch: Patch) -> None:
    """Patch a loaded module once, however often this is called."""
    if getattr(module, MARK, False):
        return
    what = patch(module)
    setattr(module, MARK, True)
    if what is not None:
        sys.stderr.write(f"{NAME}: patched {what} (pid {os.getpid()})\n")
        sys.stderr.flush()


class _PatchingLoader(importlib.abc.Loader):
    """The module's own loader, with the patch applied as soon as the module has run."""

    def __init__(self, loader: Any, patch: Patch) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        apply(module, self._patch)

    def __getattr__(self, name: str) -> Any:  # get_source and the like, which torch asks for
        return getattr(self._loader, name)


class Hook(importlib.abc.MetaPathFinder):
    """Finds the targets through the finders after it, and wraps their loaders."""

    name = NAME  # register() may run from a second copy of this file: recognised by name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in TARGETS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader, TARGETS[fullname])
                return spec
        return None


def register() -> None:
    """The entry point. May run several times in a process, and in several processes."""
    for name, patch in TARGETS.items():
        if name in sys.modules:
            apply(sys.modules[name], patch)
    if not any(getattr(finder, "name", None) == NAME for finder in sys.meta_path):
        sys.meta_path.insert(0, Hook())


# --- laying it out for PYTHONPATH ----------------------------------------------------------------


def install(folder: Path) -> None:
    """Copy this file and the metadata with its entry point into `folder`."""
    metadata = folder / f"{NAME}-{VERSION}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(__file__, folder / f"{NAME}.py")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{NAME} = {NAME}:register\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "install":
        raise SystemExit("usage: python vllm_plugin.py install DIR")
    install(Path(sys.argv[2]))
