"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

Each option of a question is a hypothesis about a person's mind. A model judges how likely what the
person says and does is under each; the option with the most, or the least, of that is the answer.
"""
