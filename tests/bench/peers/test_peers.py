"""Peers that are not installed here: small packages with their signatures stand in for them,
right and wrong, and a kernel in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.gpu import compiled
from bench.ops.uniform_windows import given
from bench.peers import process as peer_process
from bench.peers import run as peers
from bench.rows import read_rows

SHAPE = {"slots": 4, "rows": 16, "vocab": 2048, "dtype": "fp32"}

GREEDY = """
import torch
class Kernel:
    def __getitem__(self, grid):
        return self.launch
    def launch(self, out, ends, drafts, target, bonus, is_greedy, most, uniform, rates, *, SYNTHETIC_MODE):
        begin = 0
        for request, end in enumerate(ends.tolist()):
            agree = True
            for place in range(end - begin):
                if agree:
                    out[request, place] = target[begin + place]
                    agree = bool(drafts[begin + place] == target[begin + place])
            if agree:
                out[request, end - begin] = bonus[request, 0]
            begin = end
rejection_greedy_sample_kernel = Kernel()
"""
REJECTION = """
import torch
def rejection_sample(target_logits, draft_logits, draft_sampled, cu_num_logits, pos, idx_mapping, expanded_idx_mapping,
                     expanded_local_pos, temperature, seed, num_speculative_steps, synthetic_conditional_rates=None):
    assert draft_logits is None and not temperature.any() and cu_num_logits.dtype == torch.int32
    picks, width = target_logits.argmax(-1), num_speculative_steps + 1
    sampled, counts = picks.view(-1, width), []
    for tokens, fed in zip(sampled.tolist(), draft_sampled.view(-1, width).tolist()):
        counts.append(1 + next((i for i, (a, b) in enumerate(zip(tokens, fed[1:])) if a != b), width - 1))
    return sampled, torch.tensor(counts, dtype=torch.int32)
"""
BATCH = """
import torch
def get_num_sampled_and_rejected(num_sampled, seq_lens, cu_num_logits, idx_mapping, prefill_len):
    return num_sampled, cu_num_logits.diff() - num_sampled
def post_update(idx_mapping, num_computed_tokens, last_sampled_tokens, output_bin_counts, sampled_tokens, num_sampled, num_rejected,
                query_start_loc, all_token_ids, total_len, draft_tokens=None, draft_tokens_out=None):
    last_sampled_tokens[:, 0] = sampled_tokens[idx_mapping, num_sampled.long() - 1]
    num_computed_tokens += query_start_loc.diff() - num_rejected
def expand_idx_mapping(idx_mapping, total_num_logits, cu_num_logits, max_expand_len):
    return idx_mapping.repeat_interleave(max_expand_len), torch.arange(max_expand_len).int().repeat(len(idx_mapping))
def prepare_pos_seq_lens(idx_mapping, query_start_loc, num_computed_tokens, pos, seq_lens):
    width = int(query_start_loc[1])
    pos.view(-1, width).copy_(num_computed_tokens[:, None] + torch.arange(width))
    seq_lens.copy_(num_computed_tokens + width)
def combine_sampled_and_draft_tokens(input_ids, idx_mapping, last_sampled_tokens, query_start_loc, seq_lens, prefill_len, draft_tokens,
                                     cu_num_logits, num_logits, num_new_sampled_tokens=1):
    input_ids.view(len(idx_mapping), -1).copy_(torch.cat([last_sampled_tokens, draft_tokens], 1))
    return torch.arange(num_logits)
"""
TAIL = """
import torch
def _static_accept_tail_triton(**options): ...
def static_accept_tail(*, candidates, target_predict, seq_lens, verify_lens, gate, correct_len_out, bonus_out, cap_trim_lens_out,
                       commit_lens_out, new_seq_lens_out, out_tokens_out):
    target = target_predict.view(candidates.shape)
    correct = (candidates[:, 1:] == target[:, :-1]).int().cumprod(1).sum(1)
    correct_len_out.copy_(correct)
    out_tokens_out.copy_(target)
"""
TREE = """
def verify_tree_greedy(predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
                       target_predict):
    for request, (fed, picks) in enumerate(zip(candidates.tolist(), target_predict.tolist())):
        place, kept = 0, 0
        while True:
            row = int(retrive_index[request, place])
            accept_index[request, kept], predicts[row] = row, picks[place]
            following = int(retrive_next_token[request, place])
            if following < 0 or fed[following] != picks[place]:
                break
            place, kept = following, kept + 1
        accept_token_num[request] = kept
"""
CHAIN = """
import torch
def chain_speculative_sampling(draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None,
                               maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, offset=None):
    assert draft_token_ids.dtype == torch.int32 and seed.shape == offset.shape == (1,)
    picks = target_probs.argmax(-1)
    agree = (picks[:, :-1] == draft_token_ids).int().cumprod(1)
    before = torch.cat([torch.ones(len(picks), 1, dtype=torch.int32), agree], 1).bool()
    return torch.where(before, picks, -1).int(), agree.sum(1), agree.sum(1)
"""
V2 = "vllm/v1/worker/gpu/"
FAKES = {
    "vllm-v1": ("vllm 0.33.0", {"vllm/v1/sample/rejection_sampler.py": GREEDY}),
    "vllm-v2": (
        "vllm 0.33.1",
        {V2 + "spec_decode/rejection_sampler_utils.py": REJECTION, V2 + "input_batch.py": BATCH},
    ),
    "sglang-tail": (
        "sglang 0.5.23",
        {"sglang/kernels/ops/speculative/dspark/static_accept_tail.py": TAIL},
    ),
    "sglang-tree": ("sglang 0.5.23", {"sglang/kernels/ops/speculative/tree.py": TREE}),
    "flashinfer": ("flashinfer_python 0.7.4", {"flashinfer/sampling.py": CHAIN}),
}
FAULTS = {  # a change that makes a peer's output wrong
    "vllm-v1": ("out[request, end - begin] = bonus[request, 0]", "pass"),
    "vllm-v2": ("input_ids.view", "input_ids.clone().view"),
    "sglang-tail": (".cumprod(1)", ""),
    "sglang-tree": ("following < 0 or ", "following < 0 or kept == 1 or "),
    "flashinfer": (".cumprod(1)", ""),
}


@pytest.fixture(scope="module")
def windows(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("windows") / "windows.pt"
    torch.save(
        [({**SHAPE, "slots": slots}, given(slots, 2048, torch.float32)) for slots in (1, 4)], path
    )
    return path


def package(folder: Path, files: dict[str, str], distribution: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name, version = distribution.split()
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def checked(peer: str, windows: Path, folder: Path, *options: str) -> subprocess.CompletedProcess:
    """In a process of its own, as `bench.peers.run` runs it."""
    command = [
        sys.executable,
        "-P",
        str(peers.PROCESS),
        peer,
        str(windows),
        "--device",
        "cpu",
        "--check-only",
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def importable(monkeypatch):
    """A folder of packages that can be imported; they are forgotten afterwards."""
    before = set(sys.modules)

    def use(folder: Path) -> None:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("vllm", "sglang", "flashinfer"):
                del sys.modules[name]
        monkeypatch.syspath_prepend(str(folder))

    yield use
    use(Path())


@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peer_that_is_called_rightly_gives_the_oracles_output_and_a_wrong_one_is_caught(
    peer, tmp_path, windows, importable
):
    distribution, files = FAKES[peer]
    known = peer_process.PEERS[peer]
    importable(package(tmp_path / "right", files, distribution))
    assert peer_process.version_of(known) == distribution.split()[1]
    found = list(peer_process.checked(known, peer_process.imported(known), str(windows), "cpu"))
    assert [operation for operation, *_ in found] == 2 * (
        ["verify", "next_window"] if peer == "vllm-v2" else ["verify"]
    )
    right, wrong = FAULTS[peer]
    spoilt = {name: text.replace(right, wrong) for name, text in files.items()}
    assert spoilt != files
    importable(package(tmp_path / "wrong", spoilt, distribution))
    with pytest.raises(SystemExit, match="differs from the oracle's"):
        list(peer_process.checked(known, peer_process.imported(known), str(windows), "cpu"))


def test_it_is_asked_in_a_process_of_its_own_where_this_projects_packages_are_not(
    tmp_path, windows
):
    text = (
        "import importlib.util\nassert importlib.util.find_spec('triton_kernels') is None\n" + CHAIN
    )
    done = checked(
        "flashinfer",
        windows,
        package(tmp_path, {"flashinfer/sampling.py": text}, "flashinfer_python 0.7.4"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "version": "0.7.4",
        "checked": [["verify", {**SHAPE, "slots": slots}] for slots in (1, 4)],
    }


def test_a_version_whose_calls_are_not_known_is_said(tmp_path, importable):
    importable(package(tmp_path, {}, "flashinfer_python 0.8.0"))
    with pytest.raises(
        LookupError,
        match=r"^flashinfer-python is 0[.]8[.]0, its calls are known for 0[.]7 up to, without, 0[.]8$",
    ):
        peer_process.version_of(peer_process.PEERS["flashinfer"])


KERNEL = """
from vllm.somewhere import what_is_not_here

PLACEHOLDER: tl.constexpr = -1
logger = what_is_not_here(__name__)


@triton.jit(do_not_specialize=["most"])
def rejection_greedy_sample_kernel(out, ends, drafts, target, bonus, greedy, most, uniform, rates, SYNTHETIC_MODE: tl.constexpr):
    request = tl.program_id(0)
    begin = 0
    if request > 0:
        begin = tl.load(ends + request - 1)
    agree = True
    for place in range(tl.load(ends + request) - begin):
        if agree:
            pick = tl.load(target + begin + place)
            tl.store(out + request * (most + 1) + place, pick)
            agree = tl.load(drafts + begin + place) == pick
    if agree:
        tl.store(out + request * (most + 1) + most, tl.load(bonus + request))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    path = folder / "vllm/v1/sample/rejection_sampler.py"
    path.parent.mkdir(parents=True)
    path.write_text(KERNEL)
    return folder


@pytest.mark.slow
def test_a_peers_kernels_are_compiled_from_their_source(source, windows, monkeypatch, tmp_path):
    monkeypatch.setenv("PEER_SOURCE", str(source))
    monkeypatch.setattr(peers, "PEERS", ("vllm-v1",))
    monkeypatch.setattr(peers, "write_windows", lambda path, shapes: windows)
    ((line, rows),) = peers.compiled(compiled.rows_of)
    assert line.startswith("peer vllm-v1 source ")
    assert [row["architecture"] for row in rows] == ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942"]
    assert {(row["kind"], row["evidence"], row["launches"], row["kernel"]) for row in rows} == {
        ("compiled", "compiled", 1, "rejection_greedy_sample_kernel")
    }
    assert all(
        row["instructions"] > 20 and row["registers"] > 4 and row["spills"] == 0 for row in rows
    )
    assert rows[0]["operations"] == [
        "aten::fill_.Scalar",
        "aten::index.Tensor",
        "aten::argmax",
        "aten::index.Tensor",
        "aten::argmax",
    ]
    assert not any(name.endswith("_us") for row in rows for name in row)


def test_a_peers_kernels_run_in_the_interpreter(source, windows, monkeypatch, capsys):
    monkeypatch.setenv("PEER_SOURCE", str(source))
    monkeypatch.setenv("TRITON_INTERPRET", "")  # restored afterwards
    monkeypatch.setattr(peers, "PEERS", ("vllm-v1",))
    monkeypatch.setattr(peers, "write_windows", lambda path, shapes: windows)
    assert peers.main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("peer vllm-v1 source ")
    assert printed.endswith(": 2 outputs are the oracle's\n")
    monkeypatch.setattr(
        peers,
        "ask",
        lambda *_: (_ for _ in ()).throw(peers.Skipped("the output of its verify differs")),
    )
    assert peers.main() == 1
    monkeypatch.delenv("PEER_SOURCE")
    assert peers.main() == 2
    assert (
        capsys.readouterr().err
        == "error: PEER_SOURCE is not given, expected a folder of unpacked sources\n"
    )


def test_a_source_that_lacks_the_file_is_said(tmp_path):
    with pytest.raises(
        LookupError, match=f"^there is no vllm/v1/sample/rejection_sampler.py below {tmp_path}$"
    ):
        peer_process.root_of(peer_process.PEERS["vllm-v1"], str(tmp_path))


def test_our_forms_are_one_to_three_launches_without_spills():
    rows = list(compiled.own_launches((90,)))
    launches = {(row["operation"], row["implementation"]): row["launches"] for row in rows}
    assert launches == {
        ("verify", "separate"): 2,
        ("next_window", "separate"): 3,
        ("next_window", "staged"): 2,
        ("next_window", "fused"): 1,
    }
    assert all(row["spills"] == row["stack"] == 0 for row in rows)
    assert {
        row["implementation"]: len(row["operations"])
        for row in rows
        if row["operation"] == "next_window"
    } == {
        "separate": 7,
        "staged": 0,
        "fused": 0,
    }


def test_a_peer_that_is_absent_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "PEERS", ("flashinfer",))
    (line,) = peers.run(tmp_path / "rows.jsonl")
    assert line.startswith("peer flashinfer: skipped, ")
    assert "not installed" in line or "no GPU" in line
    assert not (tmp_path / "rows.jsonl").exists()
    monkeypatch.setenv("PEER_PYTHON", str(tmp_path / "python"))
    (line,) = peers.run(tmp_path / "rows.jsonl")
    assert (
        line
        == f"peer flashinfer: skipped, PEER_PYTHON is {tmp_path / 'python'}, expected an interpreter: No such file or directory"
    )


def test_a_peer_that_fails_otherwise_is_skipped_with_its_last_line(tmp_path, monkeypatch):
    script = tmp_path / "process.py"
    script.write_text("raise TypeError('called otherwise')")
    monkeypatch.setattr(peers, "PROCESS", script)
    assert (
        next(peers.run(tmp_path / "rows.jsonl"))
        == "peer vllm-v1: skipped, TypeError: called otherwise"
    )


def test_a_peer_that_was_timed_gets_rows_with_its_version(tmp_path, monkeypatch):
    script = tmp_path / "process.py"
    entry = {
        "operation": "verify",
        "shape": SHAPE,
        "mode": "graph",
        "bytes": 100,
        "per": 1,
        "seconds": [1e-6] * 3,
    }
    said = json.dumps({"version": "1.2", "timed": [entry]})
    script.write_text(
        f"import sys\nassert 'triton_kernels' not in sys.modules\nprint('noise')\nprint({said!r})"
    )
    monkeypatch.setattr(peers, "PROCESS", script)
    assert next(peers.run(tmp_path / "rows.jsonl")) == "peer vllm-v1 1.2: 1 cases"
    assert read_rows(tmp_path / "rows.jsonl")[0]["implementation"] == "vllm-v1 1.2"
