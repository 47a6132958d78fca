"""The sections of a sweep file as frozen models."""
