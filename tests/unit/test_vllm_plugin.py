"""The vLLM plugin against made-up vLLM modules: found, corrected, and failing closed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hunyuan_ocr.engines import vllm_plugin

MULTIMODAL = '''
class MultiModalMixin:
    """As the Transformers backend does it: cut by patch counts, pad and truncate to fit."""

    def __init__(self, model):
        self.model = model

    def _split_embeddings(self, embeddings, split_sizes):
        rows = (embeddings.rows * sum(split_sizes))[: sum(split_sizes)]
        return [[rows.pop(0) for _ in range(size)] for size in split_sizes]

    def embed(self, grid, encoded):
        patches = Counts(h * w for _, h, w in grid.tolist())
'''
VISION = """
        return self._process_vision_input("image", encoded, patches, image_grid_thw=grid)

    def _process_vision_input(self, modality, pixel_values, num_patches, **kwargs):
        return self._split_embeddings(pixel_values, list(num_patches))
"""
IMAGE = """
        return self._process_image_input(
            pixel_values=encoded, num_image_patches=patches, image_grid_thw=grid
        )

    def _process_image_input(self, **kwargs):
        return self._split_embeddings(kwargs["pixel_values"], list(kwargs["num_image_patches"]))
"""
COUNTS = "Counts = list\n"

RUNNER = """
class GPUModelRunner:
    def __init__(self, requests, encoded):
        self.requests, self.encoded, self.encoder_cache = requests, encoded, {}

    def _execute_mm_encoder(self, scheduler_output):
        self.encoder_cache.update(self.encoded)
        return "outputs"
"""
SECOND_RUNNER = """
class EncoderRunner:
    def __init__(self, encoder_cache):
        self.encoder_cache = encoder_cache

    def gather_mm_embeddings(self, req_ids, total, draft_lookahead=0):
        return "embeddings"
"""
NATIVE = """
class HunYuanVLForConditionalGeneration:
    def get_xdrope_input_positions(self, {arguments}):
        raise IndexError("one image-start token too many")
"""


@pytest.fixture(name="vllm")
def _vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for a made-up vllm package, importable while the test runs."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"vllm", "torch"}:
            del sys.modules[name]


def write(root: Path, module: str, text: str) -> None:
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()


@dataclass
class Grid:
    """As much of a (images, 3) tensor as the plugin asks of one."""

    images: list[tuple[int, int, int]]

    def reshape(self, *_: int) -> Grid:
        return self

    def tolist(self) -> list[tuple[int, int, int]]:
        return self.images


@dataclass
class Encoded:
    rows: list[str]
    shape: tuple[int, int] = field(default=(0, 4))

    def numel(self) -> int:
        return len(self.rows) * self.shape[-1]


def encode(grid: Grid) -> tuple[Encoded, list[list[str]]]:
    """The encoder's rows for all images in one run, and what each image should get."""
    own = [
        [f"image {index} row {row}" for row in range((h // 2) * (w // 2 + 1) + 2)]
        for index, (_, h, w) in enumerate(grid.images)
    ]
    return Encoded([row for rows in own for row in rows]), own


def multimodal(root: Path, body: str, model_type: str = "hunyuan_vl") -> Any:
    write(root, "vllm.model_executor.models.transformers.multimodal", COUNTS + MULTIMODAL + body)
    write(root, "torch", "tensor = list\n")
    vllm_plugin.register()
    module = importlib.import_module("vllm.model_executor.models.transformers.multimodal")
    vision = SimpleNamespace(spatial_merge_size=2)
    config = SimpleNamespace(model_type=model_type, vision_config=vision)
    return module.MultiModalMixin(SimpleNamespace(config=config))


TWO_IMAGES = Grid([(1, 4, 8), (1, 6, 10)])


@pytest.mark.parametrize("body", [VISION, IMAGE], ids=["0.32", "0.30"])
def test_every_image_of_a_batch_gets_its_own_rows(vllm: Path, body: str) -> None:
    encoded, own = encode(TWO_IMAGES)
    assert multimodal(vllm, body).embed(TWO_IMAGES, encoded) == own


def test_rows_that_do_not_add_up_are_refused(vllm: Path) -> None:
    encoded, _ = encode(TWO_IMAGES)
    encoded.rows.pop()
    with pytest.raises(vllm_plugin.LeakError):
        multimodal(vllm, VISION).embed(TWO_IMAGES, encoded)


def test_other_architectures_are_left_alone(vllm: Path) -> None:
    encoded, _ = encode(TWO_IMAGES)
    cut = multimodal(vllm, VISION, model_type="qwen").embed(TWO_IMAGES, encoded)
    assert [len(rows) for rows in cut] == [32, 60]  # patch counts


@given(h=st.integers(1, 64), w=st.integers(1, 64))
def test_rows_are_the_visual_tokens_of_the_page(h: int, w: int) -> None:
    """tokens = (H/32)*(W/32+1)+2 for a page of H x W pixels, patches of 16 and merge size 2."""
    height_px, width_px = 32 * h, 32 * w
    rows = vllm_plugin.rows_per_image([(1, height_px // 16, width_px // 16)], 2)
    assert rows == [height_px // 32 * (width_px // 32 + 1) + 2]


# --- row guard -----------------------------------------------------------------------------------


def feature(name: str, tokens: int) -> Any:
    position = SimpleNamespace(get_num_embeds=lambda: tokens)
    return SimpleNamespace(identifier=name, mm_position=position)


def rows(count: int) -> Any:
    return SimpleNamespace(shape=(count, 4))


def run_first(root: Path, encoded: dict[str, Any]) -> Any:
    write(root, "vllm.v1.worker.gpu_model_runner", RUNNER)
    vllm_plugin.register()
    module = importlib.import_module("vllm.v1.worker.gpu_model_runner")
    requests = {
        "r1": SimpleNamespace(mm_features=[feature("a", 14)]),
        "r2": SimpleNamespace(mm_features=[feature("b", 20)]),
    }
    scheduled = SimpleNamespace(scheduled_encoder_inputs={"r1": [0], "r2": [0]})
    return module.GPUModelRunner(requests, encoded)._execute_mm_encoder(scheduled)


def run_second(root: Path, encoded: dict[str, Any]) -> Any:
    write(root, "vllm.v1.worker.gpu.mm.encoder_runner", SECOND_RUNNER)
    vllm_plugin.register()
    module = importlib.import_module("vllm.v1.worker.gpu.mm.encoder_runner")
    features = {"r1": [feature("a", 14)], "r2": [feature("b", 20)]}
    cache = SimpleNamespace(mm_features=features, encoder_outputs=encoded)
    return module.EncoderRunner(cache).gather_mm_embeddings(["r1", "r2"], 40)


@pytest.mark.parametrize("run", [run_first, run_second])
def test_matching_rows_pass(vllm: Path, run: Any) -> None:
    assert run(vllm, {"a": rows(14), "b": rows(20)})


@pytest.mark.parametrize("run", [run_first, run_second])
@pytest.mark.parametrize("counts", [(15, 19), (14, 21), (14, 0)])
def test_a_mismatch_in_any_image_ends_the_step(
    vllm: Path, run: Any, counts: tuple[int, int]
) -> None:
    with pytest.raises(vllm_plugin.LeakError, match="placeholder"):
        run(vllm, {"a": rows(counts[0]), "b": rows(counts[1])})


def test_a_runner_that_cannot_be_guarded_does_not_load(vllm: Path) -> None:
    write(vllm, "vllm.v1.worker.gpu_model_runner", "class GPUModelRunner: pass\n")
    vllm_plugin.register()
    with pytest.raises(AttributeError, match="_execute_mm_encoder"):
        importlib.import_module("vllm.v1.worker.gpu_model_runner")


# --- hooks ---------------------------------------------------------------------------------------


def native(root: Path, arguments: str) -> Any:
    write(root, "vllm.model_executor.models.hunyuan_vision", NATIVE.format(arguments=arguments))
    vllm_plugin.register()
    module = importlib.import_module("vllm.model_executor.models.hunyuan_vision")
    return module.HunYuanVLForConditionalGeneration.get_xdrope_input_positions


def test_the_native_models_positions_are_replaced(vllm: Path) -> None:
    assert native(vllm, "input_tokens, mm_features") is vllm_plugin.image_positions


def test_positions_with_other_arguments_are_left_alone(vllm: Path) -> None:
    assert native(vllm, "input_tokens, hf_config, grid") is not vllm_plugin.image_positions


def test_a_module_is_patched_once_and_says_so_once(
    vllm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vllm_plugin.register()
    run_first(vllm, {"a": rows(14), "b": rows(20)})
    vllm_plugin.register()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"hunyuan_ocr_plugin: patched row guard (pid {os.getpid()})"]


def test_a_module_loaded_before_is_patched_too(
    vllm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(vllm, "vllm.v1.worker.gpu_model_runner", RUNNER)
    importlib.import_module("vllm.v1.worker.gpu_model_runner")
    vllm_plugin.register()
    assert "patched row guard" in capsys.readouterr().err


# --- laying it out -------------------------------------------------------------------------------


def test_the_installed_folder_is_a_plugin_that_imports_next_to_nothing(tmp_path: Path) -> None:
    """Installed by the file itself, then found and loaded as vLLM does."""
    source = Path(vllm_plugin.__file__)
    for _ in range(2):  # again over itself
        subprocess.run([sys.executable, str(source), "install", str(tmp_path)], check=True)
    (found,) = distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == (
        "vllm.general_plugins",
        "hunyuan_ocr_plugin:register",
    )
    program = (
        "import sys, hunyuan_ocr_plugin as plugin\n"
        "plugin.register(); plugin.register()\n"
        "assert sum(type(finder).__name__ == 'Hook' for finder in sys.meta_path) == 1\n"
        "assert not {'torch', 'vllm', 'hunyuan_ocr'} & set(sys.modules)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
