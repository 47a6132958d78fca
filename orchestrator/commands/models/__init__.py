"""Commands on the models that trials trained."""
