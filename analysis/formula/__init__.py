"""Laws as their users write them: the grammar, and the steps in which they and their derivatives go."""
