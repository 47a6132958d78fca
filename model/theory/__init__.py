"""What is measured along a run: movement, sharpness, preconditioners."""
