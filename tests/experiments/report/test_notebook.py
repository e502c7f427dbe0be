"""The notebook runs from its first cell to its last."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbclient import NotebookClient

from experiments.io import PROJECT

NOTEBOOK = PROJECT / "docs" / "notebooks" / "from_sweep_to_figure.ipynb"


@pytest.mark.slow
def test_the_notebook_goes_from_a_sweep_to_a_figure(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    )
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert (tmp_path / "drafts.svg").read_text().count("[synthetic]") == 2
    assert "18 runs, 18 arms, 0 not whole, 0 not run" in notebook.cells[-1].outputs[0].text
    assert (tmp_path / "sweep" / "report" / "index.html").exists()


def test_the_notebook_is_kept_without_outputs_and_names_nothing_of_one_machine():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
