"""`torch.compiler.save_cache_artifacts` carries compiled programs to another cache."""

from pathlib import Path

from behaviour.script import run_script

SAVE = """
import torch, torchneuron
f = torch.compile(lambda x: x * 3 + 1, backend="neuron")
f(torch.ones(5, device="neuron"))
data, info = torch.compiler.save_cache_artifacts()
assert len(info.torchneuron_artifacts) == 1, info
open("artifacts", "wb").write(data)
"""
LOAD = """
import torch
info = torch.compiler.load_cache_artifacts(open("artifacts", "rb").read())
assert len(info.torchneuron_artifacts) == 1, info
import torchneuron
f = torch.compile(lambda x: x * 3 + 1, backend="neuron")
with torchneuron.explain() as report:
    assert f(torch.ones(5, device="neuron")).cpu().tolist() == [4.0] * 5
report.assert_no("compile")
assert len(report.to_dict()["cache_hits"]) == 1
"""


def test_programs_travel(tmp_path: Path) -> None:
    for source, folder in ((SAVE, "here"), (LOAD, "there")):
        run_script(source, tmp_path, env={"TORCHNEURON_CACHE_DIR": str(tmp_path / folder)})
