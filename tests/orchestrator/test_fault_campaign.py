"""Faults at random moments on this machine: nothing is lost, nothing runs twice, and no bit changes."""

import pytest
from campaign import LOCAL_FAULTS, SWEEP, Campaign, count_of_faults, results

pytestmark = pytest.mark.slow


def test_a_sweep_survives_faults_at_random_moments(tmp_path, text_files):
    sweep = SWEEP.format(text=text_files)
    undisturbed = Campaign(tmp_path / "undisturbed", sweep, [], {}, seed=0)
    undisturbed.run(0, (0.0, 0.0))
    campaign = Campaign(tmp_path / "disturbed", sweep, [], LOCAL_FAULTS, seed=1)
    campaign.run(count_of_faults(8), (1.0, 5.0))
    campaign.assert_whole(results(undisturbed.folder))
    campaign.record("local")
