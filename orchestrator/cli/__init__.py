"""What all commands share: their option types, the application, and how a result is written."""
