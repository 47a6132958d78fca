"""Arm against reference: differences, multipliers, the verdict and what it rests on."""
