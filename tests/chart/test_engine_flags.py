"""vLLM is started by the chart as it is in the tests against the real engine."""

from __future__ import annotations

import pytest

from hunyuan_ocr.engines.visual_tokens import PixelBounds
from scripts.chart.render import Manifest, RenderError, containers, only
from scripts.engine import serve
from tests.chart.conftest import Render
from tests.engine.sidecar import TINY


def parts(documents: list[Manifest]) -> dict[str, Manifest]:
    return containers(only(documents, "Deployment")["spec"]["template"]["spec"])


def flags(arguments: list[str]) -> dict[str, list[str]]:
    """Every flag with what follows it. Raises ValueError for one given twice."""
    found: dict[str, list[str]] = {}
    name = ""
    for argument in arguments:
        if argument.startswith("-"):
            name, _, value = argument.partition("=")
            if name in found:
                raise ValueError(f"{name} is given twice")
            found[name] = [value] if value else []
        else:
            found.setdefault(name, []).append(argument)
    return found


def environment(container: Manifest) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container["env"]}


def vllm_flags(documents: list[Manifest]) -> dict[str, list[str]]:
    return flags(parts(documents)["vllm"]["args"])


def test_the_cpu_trial_has_the_flags_of_the_tested_engine(render: Render) -> None:
    found = vllm_flags(render("cpu-trial"))
    assert found.pop("") == ["vllm", "serve", "/models/tiny-hunyuan-vl-native"]
    expected = flags([*serve.COMMON, *serve.VERSIONED["0.28.0"], *serve.CPU_ONLY])
    own = {
        "--served-model-name": [*serve.SERVED_NAMES],
        "--port": ["8000"],
        "--max-num-seqs": ["4"],
        "--renderer-num-workers": ["1"],  # vLLM's default
    }
    assert found == expected | own


@pytest.mark.parametrize("case", ["rtx-4090-d", "air-gapped"])
def test_a_gpu_changes_nothing_but_the_profiles_figures(render: Render, case: str) -> None:
    found = vllm_flags(render(case))
    for flag, value in flags([*serve.COMMON]).items():
        if flag not in ("--max-model-len", "--max-num-batched-tokens"):
            assert found[flag] == value, flag


@pytest.mark.parametrize("case", ["rtx-4090-d", "cpu-trial"])
def test_vllm_has_the_environment_of_the_tested_engine(render: Render, case: str) -> None:
    assert serve.ENVIRONMENT.items() <= environment(parts(render(case))["vllm"]).items()


def test_what_depends_on_vllms_version(render: Render) -> None:
    newer = render("rtx-4090-d", {"engine": {"version": "0.32.0"}})
    assert vllm_flags(newer)["--max-num-queued-reqs"] == ["256"]
    assert vllm_flags(newer)["-cc.cudagraph_mode"] == ["NONE"]
    assert "VLLM_USE_V2_MODEL_RUNNER" not in environment(parts(newer)["vllm"])
    pinned = render("rtx-4090-d")
    assert not {"--max-num-queued-reqs", "-cc.cudagraph_mode"} & vllm_flags(pinned).keys()
    assert parts(pinned)["vllm"]["image"] == "vllm/vllm-openai:v0.28.0"
    assert parts(newer)["vllm"]["image"] == "vllm/vllm-openai:v0.32.0"


def test_the_4090_d_has_the_published_figures(render: Render) -> None:
    found = vllm_flags(render("rtx-4090-d"))
    assert found["--max-num-seqs"] == ["16"]
    assert found["--gpu-memory-utilization"] == ["0.9"]
    assert found["--max-model-len"] == ["4096"]
    assert found["--enable-chunked-prefill"] == []
    assert environment(parts(render("rtx-4090-d"))["hunyuan-ocr"])["HYOCR_VLLM_PAGE_PIXELS"] == (
        str(1024 * 1024)
    )


@pytest.mark.parametrize("case", ["rtx-4090-d", "time-sliced", "air-gapped", "cpu-trial"])
def test_the_service_knows_vllms_limits(render: Render, case: str) -> None:
    documents = render(case)
    found, settings = vllm_flags(documents), environment(parts(documents)["hunyuan-ocr"])
    assert [settings["HYOCR_VLLM_CONCURRENCY"]] == found["--max-num-seqs"]
    assert [settings["HYOCR_VLLM_ENCODER_TOKENS"]] == found["--max-num-batched-tokens"]


def test_the_cpu_trial_reads_the_tiny_checkpoint_as_the_tests_do(render: Render) -> None:
    settings = environment(parts(render("cpu-trial"))["hunyuan-ocr"])
    # A laptop runs four at a time and not sixteen, and its callers do not wait five minutes.
    own = ("vllm_concurrency", "standard_max_queue_s", "standard_timeout_s")
    expected = {f"HYOCR_{k.upper()}": str(v) for k, v in TINY.items() if k not in own}
    assert expected.items() <= settings.items()


@pytest.mark.parametrize("side", [256, 512, 1024, 2048])
def test_the_chart_prices_a_square_page_as_vllm_does(render: Render, side: int) -> None:
    """The refusal of too small a budget names the tokens of a page."""
    profile = {"pagePixels": side * side, "maxNumBatchedTokens": 64}
    with pytest.raises(RenderError) as error:
        render("rtx-4090-d", {"profiles": {"rtx-4090-d": profile}})
    tokens = PixelBounds(1024, side * side).tokens(side, side)
    assert f"takes {tokens} tokens" in str(error.value)


@pytest.mark.parametrize("address", ["http://collector:4318", "http://collector:4318/"])
def test_vllms_spans_go_where_the_sidecars_go(render: Render, address: str) -> None:
    changes = {"sidecar": {"settings": {"OTLP_ENDPOINT": address}}}
    traced = render("rtx-4090-d", changes)
    assert vllm_flags(traced)["--otlp-traces-endpoint"] == ["http://collector:4318/v1/traces"]
    # Or else vLLM speaks gRPC to a port that answers HTTP.
    variables = environment(parts(traced)["vllm"])
    assert variables["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"
    silent = changes | {"engine": {"traces": False}}
    for untraced in (render("rtx-4090-d"), render("rtx-4090-d", silent)):
        assert "--otlp-traces-endpoint" not in vllm_flags(untraced)
        assert "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" not in environment(parts(untraced)["vllm"])
