"""Models behind an address that speaks the OpenAI chat-completions protocol.

Such a model is asked and read as any other; there is no way to its inside, so that it is neither
steered nor captured, and its options have no probabilities.
"""
