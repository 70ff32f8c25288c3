"""Other libraries that read and steer the same activations, behind one small protocol.

Holds: the protocol and the choice by name (`backend`), the hooks of this project (`native`),
nnsight (`with_nnsight`) and TransformerLens (`with_transformer_lens`), with TransformerLens
adapters for the model families it lacks (`transformer_lens_adapters`).

All backends agree on what is read and where; `native` is the one that also follows generation.
"""
