"""BigToM: short stories with a true or a false belief (Gandhi et al., NeurIPS 2023)."""
