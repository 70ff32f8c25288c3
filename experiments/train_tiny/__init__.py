"""Training of the shipped tiny models from scratch: ``sally-anne train-tiny``.

Holds: documents, curriculum, architectures and the training loop.
Must not know: the probe and test stories; training plays on maps of its own.
"""
