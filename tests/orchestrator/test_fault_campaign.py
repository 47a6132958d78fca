"""Faults at random moments on this machine: nothing is lost, nothing runs twice, and no bit changes."""

import pytest
from campaign import LOCAL_FAULTS, Campaign, count_of_faults, sweep_for

pytestmark = pytest.mark.slow


def test_a_sweep_survives_faults_at_random_moments(tmp_path, text_files):
    faults = count_of_faults(6)
    sweep = sweep_for(faults, text_files)
    undisturbed = Campaign(tmp_path / "undisturbed", sweep, [], {}, seed=0)
    undisturbed.run()
    campaign = Campaign(tmp_path / "disturbed", sweep, [], LOCAL_FAULTS, seed=1)
    campaign.run(faults, undisturbed.steps())
    campaign.record("local", undisturbed.losses())
    campaign.assert_whole(undisturbed.losses())
