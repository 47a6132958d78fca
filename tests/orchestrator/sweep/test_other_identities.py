"""A plan names trials that are there under another identity."""

import yaml

from simulations import SWEEP

SIMULATE = ("--executor", "simulate")


def test_an_arm_that_is_a_setting_elsewhere_is_said_to_be_another_trial(tmp_path, scalevec):
    """Simulated trials of one law: the arms have no gain, so that both sweeps draw from one corpus."""
    elsewhere = {
        "name": "elsewhere",
        "trial": {**SWEEP["trial"], "scale_vectors": "unified"},
        "arms": {"all": {}},
    }
    for name, sections in (("sweep", SWEEP), ("other", SWEEP | elsewhere)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(sections, sort_keys=False))
    assert scalevec("run", "other.yaml", *SIMULATE).returncode == 0
    told = scalevec("plan", "sweep.yaml", *SIMULATE).stderr
    assert "4 trials of arm unified would be of arm all in sweep elsewhere but for the random numbers" in told
    assert "arm baseline would" not in told
