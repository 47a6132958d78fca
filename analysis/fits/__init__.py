"""Laws fitted to arms: estimates, intervals, hold-outs, warnings."""
