"""The plugin that the repository ships as an example: Falcon's learnable multipliers."""

import csv
import io
import shutil

import pytest

from support import CHECKOUT, succeeded

SOURCE = CHECKOUT / "docs" / "examples" / "learnable-multipliers.yaml"


@pytest.mark.nightly
@pytest.mark.slow
def test_the_shipped_sweep_trains(tmp_path, text_files, scalevec_process):
    text = SOURCE.read_text()
    corpus = f"corpus: {{source: text, files: ['{text_files}/*.txt'], tokenizer: bytes, sequence_length: 32}}"
    text = text.replace(next(line for line in text.splitlines() if line.startswith("corpus:")), corpus)
    text = text.replace("tune:", "# tune:").replace(
        "[tiny-25k, tiny-55k]", "[{name: a, width: 16, layers: 1}]"
    )
    text = text.replace("batch_tokens: 1024", "batch_tokens: 256, learning_rate: 0.01")
    (tmp_path / "s.yaml").write_text(text.replace("tokens_per_parameter: [16]", "tokens_per_parameter: [2]"))
    shutil.copy(SOURCE.with_name("learnable_multipliers.py"), tmp_path)
    succeeded(scalevec_process("run", "s.yaml", "--trust", "--jobs", "1"))
    rows = list(csv.DictReader(io.StringIO(scalevec_process("results", "learnable-multipliers").stdout)))
    assert {row["arm"] for row in rows} == {"baseline", "unified", "multipliers"}
    assert all(0 < float(row["loss"]) < float(row["loss_initial"]) for row in rows)
