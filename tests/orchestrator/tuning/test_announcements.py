"""Extending a tuning grid and choosing a rate are announced as they happen."""

from simulations import Silent, simulated

TUNE = {"learning_rate": [0.002, 0.004, 0.008], "rungs": ["small"], "extend": 1}


def test_an_edge_and_the_choices_are_announced_once_with_arm_rung_and_values(tmp_path, monkeypatch):
    messages: list[str] = []
    monkeypatch.setattr(Silent, "message", lambda _, text: messages.append(text))
    sections = {"tune": TUNE, "simulate": {"learning_rate": {"optimum": 0.02, "at": 1e5}}}
    simulated(tmp_path / "runs", **sections)
    [edge] = [message for message in messages if "at the edge" in message]
    assert edge.startswith("tuning small adamw cosine tokens_per_parameter=20: best learning rate of ")
    assert edge.endswith(" at the edge (0.008 of 0.002..0.008): grid of all arms gets 0.016")
    small, large = [message for message in messages if message.startswith("chosen learning rate at ")]
    assert small.startswith("chosen learning rate at small adamw cosine tokens_per_parameter=20: baseline ")
    assert "(censored), unified " in small
    assert large.startswith("chosen learning rate at large ")
    messages.clear()
    simulated(tmp_path / "runs", **sections)
    assert not [message for message in messages if message.startswith(("chosen", "tuning small"))]
