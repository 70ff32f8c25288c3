"""Training of the shipped tiny models, on maps that are not the benchmark's: ``train-tiny``."""
