"""Where trials run; ``registry`` names the executors, ``base`` says what each of them owes."""
