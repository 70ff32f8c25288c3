"""LIMP: language model-based inverse multi-agent planning (MuMA-ToM paper, section 4, appendix 11).

Each option of a question is a hypothesis about one person's mind. A model judges how likely that
person's utterances and actions are under each; the option asked for is the one with the most, or
the least, of what follows from that.
"""
