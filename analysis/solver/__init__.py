"""The minimum of a law's objective: design, starting points, Newton steps, the best of many starts."""
