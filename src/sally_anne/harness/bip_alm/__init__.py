"""BIP-ALM: Bayesian inverse planning accelerated by language models (MMToM-QA paper, section 4).

What is in an apartment and what a person does there are symbols, read from text. Each option of a
question is a goal and a belief; a language model says how likely each action is for somebody who
has them.
"""
