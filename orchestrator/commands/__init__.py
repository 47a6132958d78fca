"""The commands of ``scalevec``, one module each; ``cli/app.py`` lists them."""
