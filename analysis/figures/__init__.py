"""Figures, on the page of a report and as files of a paper."""
